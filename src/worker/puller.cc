#include "worker/puller.h"

#include <poll.h>
#include <time.h>

#include "state/hash.h"

namespace locum {
namespace {

std::string NameOf(const Peer& peer) {
  const std::string who = peer.rank == kNoRank ? "worker " + ToHex(peer.worker.value)
                                               : "rank " + std::to_string(peer.rank.value);
  return who + " at " + peer.address;
}

// Advances `next` past every chunk that arrived well.
Status PullFrom(const Peer& source, const PullPlan& plan, const Cancel& cancel, ChunkHashes* hashes, uint64_t* next) {
  DataRequest request;
  request.kind = DataKind::kPull;
  request.generation = plan.generation;
  request.step = plan.step;
  request.layout_hash = plan.layout_hash;
  request.first_chunk = *next;
  request.chunk_count = plan.layout->chunk_count() - *next;
  Result<TcpSocket> socket = OpenData(source, request, plan.identity, TcpNow() + plan.limits.connect, &cancel);
  if (!socket.ok()) return socket.status();
  for (; *next < plan.layout->chunk_count(); ++*next) {
    const Time deadline = TcpNow() + plan.limits.stall;
    char head[kChunkHeaderBytes];
    LOCUM_RETURN_IF_ERROR(socket->Receive(head, sizeof head, deadline, &cancel));
    Result<ChunkHeader> header = DecodeChunkHeader({head, sizeof head});
    if (!header.ok()) return header.status();
    const Chunk chunk = plan.layout->At(*next);
    if (header->index != *next || header->bytes != chunk.bytes) {
      return Invalid("chunk " + std::to_string(header->index) + " of " + std::to_string(header->bytes) +
                     " bytes came where chunk " + std::to_string(*next) + " of " + std::to_string(chunk.bytes) +
                     " was due");
    }
    uint8_t* destination = plan.destination(chunk);
    LOCUM_RETURN_IF_ERROR(socket->Receive(destination, chunk.bytes, deadline, &cancel));
    if (Hash64(destination, chunk.bytes) != header->hash) {
      return Corrupt("chunk " + std::to_string(*next) + " of shard '" + plan.layout->shards()[chunk.shard].name +
                     "' is not what its checksum says");
    }
    LOCUM_RETURN_IF_ERROR(plan.arrived(chunk, destination));
    hashes->Put(*next, header->hash);
  }
  return OkStatus();
}

Status Pause(Duration pause, const Cancel& cancel) {
  timespec time{static_cast<time_t>(pause.count() / 1'000'000'000), static_cast<long>(pause.count() % 1'000'000'000)};
  pollfd polled{cancel.fd(), POLLIN, 0};
  ::ppoll(&polled, 1, &time, nullptr);
  return cancel.IsSet() ? Interrupted("the recovery was superseded") : OkStatus();
}

}  // namespace

Result<TcpSocket> OpenData(const Peer& peer, DataRequest request, const DataIdentity& identity, Time deadline,
                           const Cancel* cancel) {
  Result<HostPort> address = ParseAddress(peer.address);
  if (!address.ok()) return address.status();
  Result<TcpSocket> socket = TcpSocket::Connect(*address, deadline, cancel);
  if (!socket.ok()) return socket;
  request.token = identity.token;
  request.job = identity.job;
  request.target = peer.worker;
  LOCUM_RETURN_IF_ERROR(socket->Send(EncodeRequest(request), deadline, cancel));
  char prefix[kAnswerPrefixBytes];
  LOCUM_RETURN_IF_ERROR(socket->Receive(prefix, sizeof prefix, deadline, cancel));
  Result<AnswerPrefix> answer = DecodeAnswerPrefix({prefix, sizeof prefix});
  if (!answer.ok()) return answer.status();
  std::string text(answer->text_bytes, '\0');
  LOCUM_RETURN_IF_ERROR(socket->Receive(text.data(), text.size(), deadline, cancel));
  if (answer->code == AnswerCode::kRefused) return Refused(text);
  if (answer->code == AnswerCode::kNotNow) return Unavailable(text);
  return socket;
}

Result<PullOutcome> Pull(const PullPlan& plan, const Cancel& cancel) {
  PullOutcome outcome;
  outcome.hashes = std::make_shared<ChunkHashes>(plan.layout->chunk_count());
  uint64_t next = 0;
  std::string reasons;
  for (int round = 0; round < plan.limits.rounds; ++round) {
    if (round > 0) LOCUM_RETURN_IF_ERROR(Pause(plan.limits.pause, cancel));
    const std::vector<Peer> sources = plan.sources();
    if (sources.empty()) return Unavailable("the order to pull names no source");
    reasons.clear();
    for (const Peer& source : sources) {
      const Status status = PullFrom(source, plan, cancel, outcome.hashes.get(), &next);
      if (status.ok()) {
        outcome.source = source.worker;
        return outcome;
      }
      if (cancel.IsSet()) return Interrupted("the recovery was superseded");
      ++outcome.retries;
      reasons += (reasons.empty() ? "" : "; ") + NameOf(source) + ": " + status.message();
    }
  }
  return Unavailable("no source could give state " + std::to_string(plan.step.value) + " (" + reasons + ")");
}

}  // namespace locum
