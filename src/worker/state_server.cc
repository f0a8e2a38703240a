#include "worker/state_server.h"

#include "state/hash.h"
#include "worker/threads.h"

namespace locum {
namespace {

constexpr Duration kStall = std::chrono::seconds(5);  // for the peer to take one chunk

}  // namespace

Status StateServer::Start() {
  for (int i = 0; i < kThreads; ++i) {
    Result<std::thread> thread = StartThread("locum-serve", [this] { Run(); });
    if (!thread.ok()) return thread.status();
    threads_.push_back(std::move(*thread));
  }
  return OkStatus();
}

void StateServer::Stop() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    stop_.Set();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  queue_.clear();
}

bool StateServer::Serve(TcpSocket socket, const DataRequest& request) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (queue_.size() >= kMaxQueue) return false;
    queue_.push_back({std::move(socket), request});
  }
  changed_.notify_one();
  return true;
}

void StateServer::Run() {
  while (true) {
    Job job;
    {
      std::unique_lock<std::mutex> lock(mu_);
      changed_.wait(lock, [&] { return stop_.IsSet() || !queue_.empty(); });
      if (stop_.IsSet()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      if (job.request.kind == DataKind::kPull) ServePull(job);
      else ServeEcho(job);
    } catch (const std::bad_alloc&) {
      // The connection closes; the peer takes another source.
    }
  }
}

void StateServer::ServePull(Job& job) {
  Result<Protocol::Ticket> ticket = protocol_.BeginServe(job.request);
  if (!ticket.ok()) {
    const AnswerCode code = ticket.status().code() == Code::kRefused ? AnswerCode::kRefused : AnswerCode::kNotNow;
    (void)job.socket.Send(EncodeAnswer({code, ticket.status().message()}), TcpNow() + kStall, &stop_);
    return;
  }
  const Layout& layout = state_.layout();
  const Cancel* cancel = ticket->cancel.get();
  std::vector<uint8_t> scratch;
  Status status = job.socket.Send(EncodeAnswer({}), TcpNow() + kStall, cancel);
  const uint64_t end = job.request.first_chunk + job.request.chunk_count;
  for (uint64_t i = job.request.first_chunk; i < end && status.ok() && !cancel->IsSet(); ++i) {
    const Chunk chunk = layout.At(i);
    Result<const uint8_t*> bytes = state_.Read(chunk, &scratch);
    if (!bytes.ok()) break;
    ChunkHeader header{i, chunk.bytes, 0};
    if (!ticket->hashes->Get(i, &header.hash)) {
      header.hash = Hash64(*bytes, chunk.bytes);
      ticket->hashes->Put(i, header.hash);
    }
    const std::string head = EncodeChunkHeader(header);
    status = job.socket.Send(head.data(), head.size(), *bytes, chunk.bytes, i + 1 < end, TcpNow() + kStall, cancel);
  }
  protocol_.EndServe();
}

void StateServer::ServeEcho(Job& job) {
  const Time deadline = TcpNow() + std::chrono::seconds(15);
  if (!job.socket.Send(EncodeAnswer({}), deadline, &stop_).ok()) return;
  std::vector<uint8_t> block(kEchoBlockBytes);
  for (uint64_t left = job.request.bytes; left > 0;) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(left, block.size()));
    if (!job.socket.Receive(block.data(), bytes, deadline, &stop_).ok()) return;
    if (!job.socket.Send(nullptr, 0, block.data(), bytes, false, deadline, &stop_).ok()) return;
    left -= bytes;
  }
}

}  // namespace locum
