#include "worker/mover.h"

#include <cstring>

#include "adapters/posix/mapping.h"
#include "adapters/posix/monotonic.h"
#include "base/random.h"
#include "state/hash.h"

namespace locum {

void Mover::Run() {
  while (std::optional<MoverTask> task = protocol_.AwaitTask()) {
    if (task->echo)
      DoEcho(*task);
    else
      Recover(*task);
    protocol_.TaskDone();
  }
}

void Mover::Recover(const MoverTask& task) {
  Result<Verified> result = Internal("");
  try {
    result = !task.order.pull ? HashOwn(task) : task.order.staged ? PullStaged(task) : PullInPlace(task);
  } catch (const std::bad_alloc&) {
    result = Unavailable("out of memory while recovering");
  }
  if (result.ok())
    protocol_.Verified(task, *result);
  else
    protocol_.CannotPull(task, result.status().message());
}

// From the last chunk to the first: a puller that reads from the first at the same time meets this half-way, and
// no chunk is read twice.
Result<Verified> Mover::HashOwn(const MoverTask& task) {
  Verified verified;
  verified.generation = task.order.generation;
  verified.step = task.order.recovery_step;
  verified.source = self_;
  verified.begin_ns = MonotonicNow().ns;
  const Word now = protocol_.word();
  if (now.state != WordState::kFrozen || now.step != task.order.recovery_step) {
    return Unavailable(std::string("this worker is ") + WordStateName(now.state) + " at state " +
                       std::to_string(now.step.value) + ", not at " + std::to_string(task.order.recovery_step.value) +
                       ", and was not told to pull");
  }
  const Layout& layout = state_.layout();
  const std::shared_ptr<ChunkHashes> hashes = protocol_.Hashes();
  std::vector<uint8_t> scratch;
  for (uint64_t i = layout.chunk_count(); i-- > 0;) {
    if (task.cancel->IsSet()) return Interrupted("the recovery was superseded");
    uint64_t hash;
    if (hashes->Get(i, &hash)) continue;
    const Chunk chunk = layout.At(i);
    Result<const uint8_t*> bytes = state_.Read(chunk, &scratch);
    if (!bytes.ok()) return bytes.status();
    hashes->Put(i, Hash64(*bytes, chunk.bytes));
  }
  verified.state_hash = StateHash(layout.Hash(), hashes->All());
  verified.end_ns = MonotonicNow().ns;
  return verified;
}

Verified Mover::Pulled(const MoverTask& task, const PullOutcome& outcome, Time begin) const {
  Verified verified;
  verified.generation = task.order.generation;
  verified.step = task.order.recovery_step;
  verified.state_hash = StateHash(state_.layout().Hash(), outcome.hashes->All());
  verified.bytes = state_.layout().bytes();
  verified.begin_ns = begin.ns;
  verified.end_ns = MonotonicNow().ns;
  verified.retries = outcome.retries;
  verified.source = outcome.source;
  return verified;
}

Result<PullOutcome> Mover::PullInto(const MoverTask& task, std::function<uint8_t*(const Chunk&)> destination,
                                    std::function<Status(const Chunk&, const uint8_t*)> arrived) {
  PullPlan plan;
  plan.identity = identity_;
  plan.generation = task.order.generation;
  plan.step = task.order.recovery_step;
  plan.layout = &state_.layout();
  plan.layout_hash = plan.layout->Hash();
  plan.sources = [&] { return protocol_.Sources(task); };
  plan.destination = std::move(destination);
  plan.arrived = std::move(arrived);
  return Pull(plan, *task.cancel);
}

Result<Verified> Mover::PullInPlace(const MoverTask& task) {
  LOCUM_RETURN_IF_ERROR(protocol_.BeginOverwrite(task));
  const Time begin = MonotonicNow();
  std::vector<uint8_t> scratch(kChunkBytes);
  Result<PullOutcome> outcome = PullInto(
      task,
      [&](const Chunk& chunk) {
        uint8_t* direct = state_.Direct(chunk);
        return direct ? direct : scratch.data();
      },
      [&](const Chunk& chunk, const uint8_t* bytes) {
        return state_.Direct(chunk) ? OkStatus() : state_.Write(chunk, bytes);
      });
  protocol_.EndOverwrite(task, outcome.ok() ? outcome->hashes : nullptr);
  if (!outcome.ok()) return outcome.status();
  return Pulled(task, *outcome, begin);
}

Result<Verified> Mover::PullStaged(const MoverTask& task) {
  const Layout& layout = state_.layout();
  Result<Mapping> staging = Mapping::Private(layout.bytes());
  if (!staging.ok()) return staging.status().Annotate("staging buffer");
  const Time begin = MonotonicNow();
  Result<PullOutcome> outcome = PullInto(
      task, [&](const Chunk& chunk) { return staging->data() + chunk.position; },
      [](const Chunk&, const uint8_t*) { return OkStatus(); });
  if (!outcome.ok()) return outcome.status();
  LOCUM_RETURN_IF_ERROR(protocol_.BeginOverwrite(task));
  Status copied;
  for (uint64_t i = 0; i < layout.chunk_count() && copied.ok(); ++i) {
    const Chunk chunk = layout.At(i);
    // To stop half-way would lose a copy that is nearly complete and safe.
    copied = state_.Write(chunk, staging->data() + chunk.position);
  }
  protocol_.EndOverwrite(task, copied.ok() ? outcome->hashes : nullptr);
  if (!copied.ok()) return copied;
  return Pulled(task, *outcome, begin);
}

void Mover::DoEcho(const MoverTask& task) {
  Echo echo;
  echo.nonce = task.order.echo_nonce;
  const Time begin = MonotonicNow();
  Status status;
  try {
    status = ExchangeEcho(task);
  } catch (const std::bad_alloc&) {
    status = Unavailable("out of memory");
  }
  echo.duration_ns = (MonotonicNow() - begin).count();
  echo.ok = status.ok();
  echo.bytes = status.ok() ? kEchoBytes : 0;
  echo.error = status.message();
  protocol_.Echoed(task, echo);
}

Status Mover::ExchangeEcho(const MoverTask& task) {
  DataRequest request;
  request.kind = DataKind::kEcho;
  request.bytes = kEchoBytes;
  const Time begin = MonotonicNow(), deadline = begin + kEchoPatience;
  Result<TcpSocket> socket =
      OpenData(task.order.echo_peer, request, identity_, begin + kEchoOpenPatience, task.cancel.get());
  if (!socket.ok()) return socket.status().Annotate("echo with " + task.order.echo_peer.address);
  std::vector<uint64_t> sent(kEchoBlockBytes / sizeof(uint64_t)), received(sent.size());
  Random random(task.order.echo_nonce);
  for (uint64_t done = 0; done < kEchoBytes; done += kEchoBlockBytes) {
    for (uint64_t& word : sent) word = random.Next();
    LOCUM_RETURN_IF_ERROR(socket->Send(nullptr, 0, sent.data(), kEchoBlockBytes, false, deadline, task.cancel.get()));
    LOCUM_RETURN_IF_ERROR(socket->Receive(received.data(), kEchoBlockBytes, deadline, task.cancel.get()));
    if (sent != received)
      return Corrupt("the echo from " + task.order.echo_peer.address + " differs from what was sent");
  }
  return OkStatus();
}

}  // namespace locum
