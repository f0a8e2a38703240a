// A source of state that answers a pull with anything, over a real connection: what the puller takes is what the
// checksums say, each chunk once and in its place, and it ends.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <thread>

#include "adapters/tcp/tcp_socket.h"
#include "input.h"
#include "seeds.h"
#include "state/hash.h"
#include "worker/puller.h"

using namespace locum;  // NOLINT

namespace {

constexpr std::array<uint64_t, 3> kShards = {10, 1, 33};

// Says to each who asks what it was given.
class Source {
 public:
  Source() {
    auto listener = TcpListener::Listen({"127.0.0.1", 0}, 16);
    LOCUM_CHECK(listener.ok());
    listener_ = std::move(*listener);
    std::thread([this] { Run(); }).detach();
  }
  std::string address() const { return FormatAddress(listener_.address()); }
  void Say(std::vector<std::string> answers) {
    std::lock_guard lock(mutex_);
    answers_ = std::move(answers);
  }

 private:
  void Run() {
    while (true) {
      const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        ::usleep(100);
        continue;
      }
      char request[4096];
      [[maybe_unused]] const ssize_t got = ::recv(fd, request, sizeof request, 0);
      std::string answer;
      {
        std::lock_guard lock(mutex_);
        if (!answers_.empty()) {
          answer = answers_.front();
          answers_.erase(answers_.begin());
        }
      }
      [[maybe_unused]] const ssize_t sent = ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      // What was sent is still read, and no port stays in use for a minute.
      const linger at_once{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      ::close(fd);
    }
  }

  TcpListener listener_;
  std::mutex mutex_;
  std::vector<std::string> answers_;
};

Source& TheSource() {
  static Source& source = *new Source();
  return source;
}

// One connection's answer: from some chunk on, with changes.
std::string Answer(FuzzInput& in, const Layout& layout) {
  if (in.Byte() % 8 == 0) return in.Bytes(256);
  std::string answer = EncodeAnswer({static_cast<AnswerCode>(in.Byte() % 16 < 14 ? 0 : in.Byte() % 4), in.Bytes(8)});
  for (uint64_t i = in.Byte() % 4; i < layout.chunk_count(); ++i) {
    std::string bytes(layout.At(i).bytes, static_cast<char>('a' + i));
    ChunkHeader header{i, static_cast<uint32_t>(bytes.size()), Hash64(bytes)};
    switch (in.Byte() % 16) {
      case 0: header.index = in.Number(); break;
      case 1: header.bytes = static_cast<uint32_t>(in.Number()); break;
      case 2: ++header.hash; break;
      case 3: bytes.resize(in.Byte() % (bytes.size() + 1)); break;
    }
    answer += EncodeChunkHeader(header) + bytes;
  }
  if (in.Byte() % 8 == 0) answer.resize(in.Byte() % (answer.size() + 1));
  return answer;
}

}  // namespace

int FuzzMixtures() { return 2'000; }

std::vector<std::string> FuzzSeeds() {
  return {std::string("\1\1\0\0\0\x0f\x0f\x0f\1", 9), std::string("\1\1\0\0\0\x0f\2\x0f\1\1\1\0\0\1\x0f\x0f\1", 17),
          std::string("\1\x0f\1\4\0gone\0\1\1\0\0\0\0\7\1\xff\3\5\0\4", 21)};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(FuzzText(data, size));
  Layout layout;
  for (size_t i = 0; i < kShards.size(); ++i) {
    LOCUM_CHECK(layout.Add({"s" + std::to_string(i), kShards[i], kGroupAll}).ok());
  }
  std::vector<std::string> answers;
  for (int n = 0; n < 4; ++n) answers.push_back(Answer(in, layout));
  TheSource().Say(answers);
  std::vector<std::vector<uint8_t>> memory;
  for (uint64_t i = 0; i < layout.chunk_count(); ++i) memory.emplace_back(layout.At(i).bytes);
  uint64_t arrived = 0;
  PullPlan plan;
  plan.identity = {"token", "job"};
  plan.layout = &layout;
  plan.sources = [&] { return std::vector<Peer>(2, {Rank(0), Incarnation(3), TheSource().address()}); };
  plan.destination = [&](const Chunk& chunk) { return memory[chunk.shard].data(); };
  plan.arrived = [&](const Chunk& chunk, const uint8_t* bytes) {
    LOCUM_CHECK(chunk.shard == arrived++ && bytes == memory[chunk.shard].data());
    return OkStatus();
  };
  plan.limits.pause = Duration(0);
  plan.limits.rounds = 2;
  Cancel cancel;
  const auto pulled = Pull(plan, cancel);
  if (!pulled.ok()) return 0;
  LOCUM_CHECK(arrived == layout.chunk_count());
  const std::vector<uint64_t> hashes = pulled->hashes->All();
  for (size_t i = 0; i < memory.size(); ++i) LOCUM_CHECK(Hash64(memory[i].data(), memory[i].size()) == hashes[i]);
  return 0;
}
