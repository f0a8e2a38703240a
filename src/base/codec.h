// Little-endian encoding for the messages between worker, agent, keeper and data ports. A reader never
// reads past its input and never allocates more than the input can fill: after the first error every
// further read yields zero values and ok() stays false.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace locum {

static_assert(std::endian::native == std::endian::little, "formats are little-endian, written by memcpy");

class Writer {
 public:
  void U8(uint8_t v) { Raw(&v, sizeof v); }
  void U16(uint16_t v) { Raw(&v, sizeof v); }
  void U32(uint32_t v) { Raw(&v, sizeof v); }
  void U64(uint64_t v) { Raw(&v, sizeof v); }
  void I64(int64_t v) { Raw(&v, sizeof v); }
  void Bool(bool v) { U8(v ? 1 : 0); }
  void Str(std::string_view v) {
    U32(static_cast<uint32_t>(v.size()));
    Raw(v.data(), v.size());
  }
  template <class T, class F>
  void List(const std::vector<T>& items, F each) {
    U32(static_cast<uint32_t>(items.size()));
    for (const T& item : items) each(item);
  }
  void Raw(const void* data, size_t size) { out_.append(static_cast<const char*>(data), size); }
  const std::string& data() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  uint8_t U8() { return Fixed<uint8_t>(); }
  uint16_t U16() { return Fixed<uint16_t>(); }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
  int64_t I64() { return Fixed<int64_t>(); }
  bool Bool() {
    uint8_t v = U8();
    if (v > 1) ok_ = false;
    return v == 1;
  }
  std::string Str() {
    uint32_t size = U32();
    if (!ok_ || size > in_.size()) {
      ok_ = false;
      return {};
    }
    std::string v(in_.substr(0, size));
    in_.remove_prefix(size);
    return v;
  }
  // `each` reads one item and must consume at least one byte of it.
  template <class T, class F>
  void List(std::vector<T>* items, F each) {
    uint32_t count = U32();
    if (!ok_ || count > in_.size()) {
      ok_ = false;
      return;
    }
    items->clear();
    for (uint32_t i = 0; i < count && ok_; ++i) items->push_back(each());
  }
  bool ok() const { return ok_; }
  // True when everything was read and nothing is left over.
  bool Done() const { return ok_ && in_.empty(); }
  std::string_view rest() const { return in_; }

 private:
  template <class T>
  T Fixed() {
    T v{};
    if (!ok_ || in_.size() < sizeof v) {
      ok_ = false;
      return v;
    }
    std::memcpy(&v, in_.data(), sizeof v);
    in_.remove_prefix(sizeof v);
    return v;
  }

  std::string_view in_;
  bool ok_ = true;
};

}  // namespace locum
