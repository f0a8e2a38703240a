// How fast state moves: two worker processes, a survivor that is parked and a replacement that pulls 1 GB from it
// over TCP into memory that was touched before, against an iperf3 stream on the same link before and after.
//
//   transfer_bench [--bytes N] [--rounds N] [--address A]
//
// Prints GB/s of each round and the ratio of the median to the mean of the iperf3 runs. Exit 1 below 0.80, 2 when it
// could not measure.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "locum/locum.hpp"
#include "state/hash.h"
#include "worker/fake_node.h"

namespace locum::testing {
namespace {

constexpr double kWanted = 0.80;

// One process: registers its state and follows orders; `fill` tells survivor from replacement.
int RunWorker(uint64_t bytes, int fill) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    std::vector<uint8_t> state(bytes, static_cast<uint8_t>(fill));
    for (uint64_t i = 0; i < bytes; i += 4096) state[i] = static_cast<uint8_t>(i >> 12);
    Job job{Options{}};
    job.Register("state", state.data(), state.size());
    while (job.NextStep()) job.Broken("the bench wants a new generation");
  } catch (const Error&) {
  }
  return 0;
}

// Bits per second, as the receiver saw them; 0 when iperf3 cannot run.
double Iperf(const std::string& address) {
  const std::string script = "iperf3 -s -1 -B " + address + " -p 52011 >/dev/null 2>&1 & sleep 0.3; iperf3 -c " + address +
                             " -p 52011 -t 3 -J 2>/dev/null; wait";
  FILE* pipe = ::popen(script.c_str(), "r");
  if (!pipe) return 0;
  std::string text;
  char block[4096];
  while (size_t n = std::fread(block, 1, sizeof block, pipe)) text.append(block, n);
  ::pclose(pipe);
  const size_t at = text.find("\"sum_received\"");
  const size_t field = at == std::string::npos ? at : text.find("\"bits_per_second\":", at);
  return field == std::string::npos ? 0 : std::strtod(text.c_str() + field + 18, nullptr);
}

pid_t Spawn(const FakeNode& node, uint64_t incarnation, uint64_t bytes) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::setenv(kSocketVariable, node.socket_path().c_str(), 1);
  ::setenv(kWorkerVariable, ToHex(incarnation).c_str(), 1);
  const std::string size = std::to_string(bytes), fill = std::to_string(incarnation);
  ::execl("/proc/self/exe", "transfer_bench", "--worker", size.c_str(), fill.c_str(), nullptr);
  ::_exit(127);
}

int Measure(uint64_t bytes, int rounds, const std::string& address) {
  const double before = Iperf(address);
  std::vector<double> rates;
  std::printf("hash kernel %s\n", HashKernelName());
  for (int round = 0; round < rounds; ++round) {
    FakeNode node;
    const pid_t survivor = Spawn(node, 1, bytes);
    std::unique_ptr<NodeEnd> from = node.Admit(address);
    const pid_t replacement = Spawn(node, 2, bytes);
    std::unique_ptr<NodeEnd> to = node.Admit(address);
    to->Wait([&] { return to->info.has_value(); });
    Conductor first({from.get()});
    first.Start();
    from->Wait([&] { return from->state.broken == Generation(1) && from->state.position == Position::kParked; });
    Conductor next({from.get(), to.get()});
    next.Freeze(2);
    next.Recover(2, 0, {1}, {next.PeerOf(0)});
    next.WaitVerified(2);
    const Verified& v = to->state.verified;
    const double seconds = static_cast<double>(v.end_ns - v.begin_ns) / 1e9;
    rates.push_back(static_cast<double>(v.bytes) / 1e9 / seconds);
    std::printf("round %d: %.3f s, %.2f GB/s (%.1f Gbit/s)\n", round, seconds, rates.back(), rates.back() * 8);
    from.reset();
    to.reset();
    for (const pid_t pid : {survivor, replacement}) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  const double after = Iperf(address);
  if (before <= 0 || after <= 0) {
    std::fprintf(stderr, "transfer_bench: iperf3 gave no figure; is it installed?\n");
    return 2;
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2] * 8e9, iperf = (before + after) / 2;
  std::printf("iperf3 %.1f and %.1f Gbit/s, migration %.1f Gbit/s, ratio %.2f (wanted %.2f)\n", before / 1e9, after / 1e9,
              median / 1e9, median / iperf, kWanted);
  return median >= kWanted * iperf ? 0 : 1;
}

}  // namespace
}  // namespace locum::testing

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--worker") {
    return locum::testing::RunWorker(std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]));
  }
  uint64_t bytes = 1'000'000'000;
  int rounds = 5;
  std::string address = "127.0.0.1";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--bytes") bytes = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--rounds") rounds = std::atoi(argv[i + 1]);
    else if (name == "--address") address = argv[i + 1];
  }
  if (bytes == 0 || rounds < 1) {
    std::fprintf(stderr, "transfer_bench: --bytes and --rounds must be positive\n");
    return 2;
  }
  return locum::testing::Measure(bytes, rounds, address);
}
