// Joining and its errors, the C functions, forked children, and what the data port lets in.
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>

#include "locum/locum.hpp"
#include "worker/fingerprint.h"
#include "worker/puller.h"
#include "worker/test_worker.h"

namespace locum::testing {
namespace {

JoinParameters ParametersFor(const std::string& socket) {
  JoinParameters parameters;
  parameters.socket = socket;
  parameters.worker = Incarnation(1);
  parameters.timeout = std::chrono::milliseconds(200);
  return parameters;
}

Status JoinStatus(const JoinParameters& parameters) { return WorkerJob::Join(parameters).status(); }

TEST(WorkerJoin, NoSocket_IsUnavailableAndNamesIt) {
  const Status status = JoinStatus(ParametersFor("/nonexistent/keeper.sock"));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("/nonexistent/keeper.sock"), std::string::npos) << status.message();
}

TEST(WorkerJoin, NobodyListens_IsUnavailable) {
  TempDir dir;
  { OwnedFd closed = ListenSeqpacket(dir / "keeper.sock", 1).value(); }
  EXPECT_EQ(JoinStatus(ParametersFor(dir / "keeper.sock")).code(), Code::kUnavailable);
}

TEST(WorkerJoin, NobodyAnswers_IsUnavailableAfterTheTimeout) {
  FakeNode node;
  const Status status = JoinStatus(ParametersFor(node.socket_path()));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("did not answer within 200 ms"), std::string::npos) << status.message();
}

TEST(WorkerJoin, LongPath_IsReached) {
  TempDir dir;
  const std::string folder = dir / std::string(120, 'a');
  std::filesystem::create_directory(folder);
  Result<OwnedFd> listener = ListenSeqpacket(folder + "/keeper.sock", 1);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_TRUE(ConnectSeqpacket(folder + "/keeper.sock", MonotonicNow() + kPatience).ok());
}

// What a node says to a second process with the same incarnation, or to another version.
TEST(WorkerJoin, RefusedByTheNode_TellsItsReason) {
  FakeNode node;
  Status status;
  std::thread joining([&] {
    JoinParameters parameters = ParametersFor(node.socket_path());
    parameters.timeout = kPatience;
    status = JoinStatus(parameters);
  });
  OwnedFd socket;
  EXPECT_TRUE(node.AcceptJoin(&socket).ok());
  EXPECT_TRUE(SendPacket(socket.get(), EncodeRefused("worker 1 has joined already")).ok());
  joining.join();
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("worker 1 has joined already"), std::string::npos);
}

TEST(WorkerJoin, Garbage_IsInvalid) {
  FakeNode node;
  Status status;
  std::thread joining([&] {
    JoinParameters parameters = ParametersFor(node.socket_path());
    parameters.timeout = kPatience;
    status = JoinStatus(parameters);
  });
  OwnedFd socket;
  EXPECT_TRUE(node.AcceptJoin(&socket).ok());
  EXPECT_TRUE(SendPacket(socket.get(), "\x10garbage").ok());
  joining.join();
  EXPECT_EQ(status.code(), Code::kInvalid);
}

TEST(WorkerJoin, PageThatMayShrink_IsRefused) {
  OwnedFd fd(::memfd_create("x", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kPageBytes), 0);
  EXPECT_FALSE(CheckSharedMemory(fd.get(), kPageBytes).ok());
  EXPECT_TRUE(CheckSharedMemory(MakeSharedMemory("x", kPageBytes)->get(), kPageBytes).ok());
  EXPECT_FALSE(CheckSharedMemory(MakeSharedMemory("x", 100)->get(), kPageBytes).ok());
}

TEST(WorkerRegister, BadShards_AreRefusedByName) {
  FakeNode node;
  TestWorker worker(node, 5);
  char byte = 0;
  EXPECT_EQ(worker.job->RegisterMemory({"weights", 1, "all"}, &byte).code(), Code::kInvalid);  // twice
  EXPECT_EQ(worker.job->RegisterMemory({"", 1, "all"}, &byte).code(), Code::kInvalid);
  EXPECT_EQ(worker.job->RegisterMemory({"x", 1, "all"}, nullptr).code(), Code::kInvalid);
  const Status owned = worker.job->RegisterMemory({"optimizer", 1, "zero-3"}, &byte);
  EXPECT_EQ(owned.code(), Code::kInvalid);
  EXPECT_NE(owned.message().find("'zero-3' is not supported yet"), std::string::npos);
}

TEST(WorkerRegister, AfterTheFirstStep_IsRefused) {
  Running job(1);
  char byte = 0;
  job.On(0, [&](TestWorker& w) {
    EXPECT_EQ(w.job->RegisterMemory({"late", 1, "all"}, &byte).code(), Code::kInvalid);
  });
}

TEST(WorkerCalls, OutOfOrder_AreErrors) {
  Running job(1);
  job.On(0, [](TestWorker& w) {
    EXPECT_EQ(w.job->EndUpdate().code(), Code::kInvalid);
    EXPECT_TRUE(w.job->BeginUpdate().ok());
    EXPECT_EQ(w.job->BeginUpdate().code(), Code::kInvalid);
    EXPECT_EQ(w.job->Broken("x").code(), Code::kInvalid);
    w.Next();
    EXPECT_EQ(w.rc, -1);
    EXPECT_TRUE(w.job->EndUpdate().ok());
    EXPECT_EQ(w.job->BeginUpdate().code(), Code::kInvalid);  // only once a step
    EXPECT_EQ(w.job->ReportLoss(1).code(), Code::kInvalid);
  });
}

TEST(Fingerprint, ProgramLines_AreAppendedAndChecked) {
  EXPECT_EQ(MakeFingerprint("no equals sign").status().code(), Code::kInvalid);
  EXPECT_EQ(MakeFingerprint("isa=x86-64-v9").status().code(), Code::kInvalid);
  Result<std::string> text = MakeFingerprint("a=1\n\nb=2");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "isa=" + IsaLevel() + "\nbuild=" + BuildId() + "\na=1\nb=2\n");
  EXPECT_GE(BuildId().size(), 16u);
}

Status OpenAs(TestWorker& worker, DataIdentity identity, Incarnation target, DataRequest request) {
  Peer peer{Rank(0), target, worker.end->info->data_address};
  return OpenData(peer, request, identity, MonotonicNow() + kPatience, nullptr).status();
}

TEST(DataPort, WrongTokenJobOrWorker_IsRefused) {
  Running job(1);
  DataRequest request;
  request.kind = DataKind::kStore;
  request.generation = Generation(1);
  TestWorker& worker = job[0];
  EXPECT_TRUE(OpenAs(worker, {"secret", "job-1"}, Incarnation(100), request).ok());
  Status status = OpenAs(worker, {"Secret", "job-1"}, Incarnation(100), request);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("wrong token"), std::string::npos);
  status = OpenAs(worker, {"secret", "job-2"}, Incarnation(100), request);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("wrong job"), std::string::npos);
  status = OpenAs(worker, {"secret", "job-1"}, Incarnation(101), request);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("wrong worker"), std::string::npos);
}

TEST(DataPort, PullFromOpenState_IsNotServed) {
  Running job(1);
  DataRequest request;
  request.kind = DataKind::kPull;
  request.generation = Generation(1);
  request.layout_hash = job[0].end->info->layout_hash;
  request.chunk_count = 1;
  EXPECT_EQ(OpenAs(job[0], {"secret", "job-1"}, Incarnation(100), request).code(), Code::kUnavailable);
  Conductor(job.ranks).Freeze(2);
  EXPECT_EQ(OpenAs(job[0], {"secret", "job-1"}, Incarnation(100), request).code(), Code::kUnavailable);
  request.generation = Generation(2);
  EXPECT_TRUE(OpenAs(job[0], {"secret", "job-1"}, Incarnation(100), request).ok());
  request.step = Step(1);
  EXPECT_EQ(OpenAs(job[0], {"secret", "job-1"}, Incarnation(100), request).code(), Code::kUnavailable);
  request.step = Step(0);
  request.layout_hash ^= 1;
  EXPECT_EQ(OpenAs(job[0], {"secret", "job-1"}, Incarnation(100), request).code(), Code::kRefused);
  request.layout_hash ^= 1;
  request.chunk_count = 1000;
  EXPECT_EQ(OpenAs(job[0], {"secret", "job-1"}, Incarnation(100), request).code(), Code::kRefused);
}

TEST(DataPort, Noise_ClosesThatConnectionOnly) {
  Running job(1);
  const HostPort address = *ParseAddress(job[0].end->info->data_address);
  const Time deadline = MonotonicNow() + kPatience;
  Result<TcpSocket> noise = TcpSocket::Connect(address, deadline, nullptr);
  ASSERT_TRUE(noise.ok());
  ASSERT_TRUE(noise->Send("GET / HTTP/1.1\r\n\r\n", deadline, nullptr).ok());
  char byte;
  EXPECT_EQ(noise->Receive(&byte, 1, deadline, nullptr).code(), Code::kUnavailable);
  job.On(0, [](TestWorker& w) { EXPECT_TRUE(w.job->StoreSet("k", "v").ok()); });
}

// ---- The C functions, one process that joins; they see the environment. ----

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    // Each death test in a fresh process: a forked one may not join.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ::setenv(kSocketVariable, node_.socket_path().c_str(), 1);
    ::setenv(kWorkerVariable, "00000000000000aa", 1);
  }
  void TearDown() override {
    ::unsetenv(kSocketVariable);
    ::unsetenv(kWorkerVariable);
  }
  FakeNode node_;
};

TEST_F(CApi, NotStartedByLocum_IsUnavailable) {
  ::unsetenv(kSocketVariable);
  locum_options options{};
  options.struct_size = sizeof options;
  locum_job* job = nullptr;
  EXPECT_EQ(locum_available(), 0);
  EXPECT_EQ(locum_join(&options, &job), LOCUM_E_UNAVAILABLE);
  EXPECT_NE(std::string(locum_last_error()).find("locum run"), std::string::npos);
  options.struct_size = 0;
  EXPECT_EQ(locum_join(&options, &job), LOCUM_E_INVALID);
  EXPECT_EQ(locum_next_step(nullptr, nullptr), LOCUM_E_INVALID);
}

// In a process of its own: joining is once per process.
TEST_F(CApi, WholeLife_AndWhatItForbids) {
  EXPECT_EXIT(
      {
        std::thread node([this] {
          std::unique_ptr<NodeEnd> end = node_.Admit();
          Conductor conductor({end.get()});
          conductor.Start();
          conductor.Finish(1);
          end->Wait([&] { return end->gone; });
        });
        try {
          Options options;
          options.total_steps = 3;
          Job job(options);
          locum_options raw{};
          raw.struct_size = sizeof raw;
          locum_job* second = nullptr;
          if (locum_join(&raw, &second) != LOCUM_E_INVALID) ::_exit(10);
          uint64_t value = 7;
          job.Register("value", &value, sizeof value);
          struct sigaction action{};
          ::sigaction(SIGPIPE, nullptr, &action);
          if (action.sa_handler != SIG_IGN) ::_exit(11);
          int steps = 0;
          while (auto step = job.NextStep()) {
            if (step.regrouped) job.Connected();
            if (!job.StoreSet("a", "b") || job.StoreGet("a", std::chrono::seconds(10)) != "b") ::_exit(12);
            if (!job.Commit(step, [&] { ++value; })) ::_exit(13);
            ++steps;
            // A data loader: it may not speak for the worker, and its end changes nothing.
            if (const pid_t child = ::fork(); child == 0) {
              uint64_t other = 0;
              const int rc = locum_register_memory(job.handle(), "x", &other, 8, nullptr);
              locum_leave(job.handle());
              ::_exit(rc == LOCUM_E_INVALID ? 0 : 1);
            } else {
              int status = 0;
              ::waitpid(child, &status, 0);
              if (status != 0) ::_exit(14);
            }
          }
          if (!job.Finish() || steps != 3 || value != 10 || job.Rank() != 0u || job.Seed() != 42) ::_exit(15);
        } catch (const Error& e) {
          std::fprintf(stderr, "%s\n", e.what());
          ::_exit(16);
        }
        node.join();
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CApi, ExceptionInCommit_TearsTheStateAndIsThrownOn) {
  EXPECT_EXIT(
      {
        std::thread node([this] {
          std::unique_ptr<NodeEnd> end = node_.Admit();
          Conductor conductor({end.get()});
          conductor.Start();
          end->Wait([&] { return end->state.word.state == WordState::kTorn; });
          conductor.Freeze(2);
          if (end->state.holding.valid) ::_exit(20);
          end->Wait([&] { return end->gone; });
        });
        {
          Job job{Options{}};
          uint64_t value = 7;
          job.Register("value", &value, sizeof value);
          const TrainStep step = job.NextStep();
          try {
            job.Commit(step, [] { throw std::runtime_error("nan in the gradient"); });
            ::_exit(10);
          } catch (const std::runtime_error& e) {
            if (std::string(e.what()) != "nan in the gradient") ::_exit(11);
          }
          try {
            job.NextStep();
            ::_exit(12);
          } catch (const Error& e) {
            if (std::string(e.what()).find("nan in the gradient") == std::string::npos) ::_exit(13);
          }
          ::usleep(100'000);
        }
        node.join();
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace locum::testing
