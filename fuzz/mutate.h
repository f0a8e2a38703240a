// Changes a protobuf message at one place that an input names: any field of any message within it.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <bit>

#include "input.h"

inline void FuzzMutate(google::protobuf::Message* message, FuzzInput& in, int depth = 0);
// Protobuf prints what it thinks of text that is not UTF-8.
inline const auto kQuietProtobuf = google::protobuf::SetLogHandler(nullptr);

namespace fuzz_internal {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

inline std::string Text(FuzzInput& in) {
  switch (in.Byte() % 6) {
    case 0: return "";
    case 1: return std::string(in.Number() % (128u << 10), 'x');
    case 2: return std::string("a\0b", 3);
    case 3: return "node-" + std::to_string(in.Below(4));
    default: return in.Bytes(64);
  }
}

inline void SetOne(Message* m, const FieldDescriptor* f, FuzzInput& in) {
  const auto* r = m->GetReflection();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return r->SetInt32(m, f, static_cast<int32_t>(in.Number()));
    case FieldDescriptor::CPPTYPE_INT64: return r->SetInt64(m, f, static_cast<int64_t>(in.Number()));
    case FieldDescriptor::CPPTYPE_UINT32: return r->SetUInt32(m, f, static_cast<uint32_t>(in.Number()));
    case FieldDescriptor::CPPTYPE_UINT64: return r->SetUInt64(m, f, in.Number());
    case FieldDescriptor::CPPTYPE_BOOL: return r->SetBool(m, f, !r->GetBool(*m, f));
    case FieldDescriptor::CPPTYPE_DOUBLE: return r->SetDouble(m, f, std::bit_cast<double>(in.Number()));
    case FieldDescriptor::CPPTYPE_FLOAT: return r->SetFloat(m, f, static_cast<float>(in.Byte()));
    case FieldDescriptor::CPPTYPE_ENUM: return r->SetEnumValue(m, f, static_cast<int>(in.Below(12)));
    case FieldDescriptor::CPPTYPE_STRING: return r->SetString(m, f, Text(in));
    case FieldDescriptor::CPPTYPE_MESSAGE: return;
  }
}

inline void ChangeList(Message* m, const FieldDescriptor* f, FuzzInput& in, int depth) {
  const auto* r = m->GetReflection();
  const int size = r->FieldSize(*m, f);
  const uint8_t what = in.Byte();
  if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    if (what % 4 == 0) return r->ClearField(m, f);
    if (f->cpp_type() == FieldDescriptor::CPPTYPE_STRING) r->AddString(m, f, Text(in));
    return;
  }
  if (size == 0 || what % 8 == 0) return FuzzMutate(r->AddMessage(m, f), in, depth + 1);
  const int at = static_cast<int>(in.Below(static_cast<uint64_t>(size)));
  if (what % 8 == 1) return r->RemoveLast(m, f);
  if (what % 8 == 2) return r->SwapElements(m, f, at, 0);
  if (what % 8 == 3) {  // the same again and again
    for (uint64_t n = in.Byte() < 250 ? 1 : 2000; n > 0; --n) {
      Message* added = r->AddMessage(m, f);
      added->CopyFrom(r->GetRepeatedMessage(*m, f, at));
    }
    return;
  }
  FuzzMutate(r->MutableRepeatedMessage(m, f, at), in, depth + 1);
}

}  // namespace fuzz_internal

inline void FuzzMutate(google::protobuf::Message* message, FuzzInput& in, int depth) {
  const auto* d = message->GetDescriptor();
  if (d->field_count() == 0 || depth > 6) return;
  const auto* f = d->field(static_cast<int>(in.Below(static_cast<uint64_t>(d->field_count()))));
  if (f->is_repeated()) return fuzz_internal::ChangeList(message, f, in, depth);
  if (f->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) return fuzz_internal::SetOne(message, f, in);
  FuzzMutate(message->GetReflection()->MutableMessage(message, f), in, depth + 1);
}
