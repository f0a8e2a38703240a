#include "runtime/notes_codec.h"

#include "base/codec.h"

namespace locum {
namespace {

constexpr uint32_t kNotesVersion = 1;

}  // namespace

std::string EncodeNotes(const node::Notes& notes) {
  Writer w;
  w.U32(kNotesVersion);
  w.U64(notes.term.value);
  w.Str(notes.job);
  w.U64(notes.cluster.value);
  w.List(notes.logs, [&](const node::Notes::Log& log) {
    w.U64(log.worker.value);
    w.U64(log.offset);
    w.U32(log.rank.value);
  });
  return w.Take();
}

Result<node::Notes> DecodeNotes(std::string_view bytes) {
  node::Notes notes;
  if (bytes.empty()) return notes;
  Reader r(bytes);
  uint32_t version = r.U32();
  if (r.ok() && version != kNotesVersion) return Invalid("notes of version " + std::to_string(version));
  notes.term = Term(r.U64());
  notes.job = r.Str();
  notes.cluster = Incarnation(r.U64());
  r.List(&notes.logs, [&] {
    node::Notes::Log log;
    log.worker = Incarnation(r.U64());
    log.offset = r.U64();
    log.rank = Rank(r.U32());
    return log;
  });
  if (!r.Done()) return Invalid("malformed notes");
  return notes;
}

}  // namespace locum
