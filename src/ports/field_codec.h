// The bytes of the values of base/cluster.h, the same in every message that carries them (worker and node,
// agent and keeper). A Get that meets a value out of range leaves its reader not ok.
#pragma once

#include "base/cluster.h"
#include "base/codec.h"
#include "ports/worker_protocol.h"

namespace locum {

class FieldReader : public Reader {
 public:
  using Reader::Reader;
  bool ok() const { return Reader::ok() && in_range_; }
  bool Done() const { return Reader::Done() && in_range_; }
  void Require(bool condition) { in_range_ &= condition; }

  Generation GetGeneration();
  Step GetStep();
  Rank GetRank();  // kNoRank or below a million
  Slot GetSlot();
  Incarnation GetIncarnation() { return Incarnation(U64()); }
  int64_t GetTime();  // not negative
  double GetDouble();

 private:
  bool in_range_ = true;
};

inline constexpr uint32_t kMaxRank = 1'000'000;

void Put(Writer& w, const Shard& v);
void Put(Writer& w, const JoinInfo& v);
void Put(Writer& w, const Holding& v);
void Put(Writer& w, const Verified& v);
void Put(Writer& w, const Echo& v);
void Put(Writer& w, const WorkerState& v);
void Put(Writer& w, const Peer& v);
void Put(Writer& w, const WorkerOrder& v);
void Put(Writer& w, const WorkerWelcome& v);

Shard GetShard(FieldReader& r);
JoinInfo GetJoinInfo(FieldReader& r);
Holding GetHolding(FieldReader& r);
Verified GetVerified(FieldReader& r);
Echo GetEcho(FieldReader& r);
WorkerState GetWorkerState(FieldReader& r);
Peer GetPeer(FieldReader& r);
WorkerOrder GetWorkerOrder(FieldReader& r);
WorkerWelcome GetWorkerWelcome(FieldReader& r);

}  // namespace locum
