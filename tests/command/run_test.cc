// `locum run` with a real trainer, to its end: what is shown, and what is told afterwards.
#include "command.h"

namespace locum::command {
namespace {

using ::testing::Not;

TEST_F(Command, GoodRun_ShowsNoFault) {
  Outcome run = Run({"run", "--nodes", "2", "--spares", "1", "--dir", "d", "--", LOCUM_MINIMAL, "--steps", "20"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Outcome events = Run({"events", "--dir", "d"});
  for (const std::string& text : {run.err, events.out}) {
    EXPECT_THAT(text, HasSubstr("job_finished"));
    EXPECT_THAT(text, Not(HasSubstr("node_stream_lost")));
    EXPECT_THAT(text, Not(HasSubstr("killed by")));
    EXPECT_THAT(text, Not(HasSubstr("since_fault")));
  }
  // The spare's end comes last, and may come when the coordinator has ended.
  EXPECT_THAT(Run({"events", "--dir", "d", "--json"}).out, Not(HasSubstr("since_fault_ns")));
  const Json status = Json::parse(Run({"status", "--dir", "d", "--json"}).out);
  EXPECT_EQ(status["job"]["state"], "finished");
  EXPECT_EQ(status["job"]["spares"], 1);
  EXPECT_EQ(status["nodes"][2]["role"], "spare");
  EXPECT_EQ(Run({"replay", "d"}).status, 0);
}

TEST_F(Command, StoppedJob_IsToldAsStopped) {
  Process coordinator(dir_, {"coordinator", "--dir", "d", "--", "sleep", "1"});
  Address("d");
  coordinator.Kill(SIGTERM);
  coordinator.Wait();
  const Outcome status = Run({"status", "--dir", "d"});
  EXPECT_THAT(status.out, HasSubstr(": stopped by SIGTERM while gathering, step 0"));
  EXPECT_THAT(status.out, HasSubstr("'locum coordinator --dir d' takes the job up again"));
  EXPECT_EQ(Json::parse(Run({"status", "--dir", "d", "--json"}).out)["job"]["reason"], "stopped by SIGTERM");
}

}  // namespace
}  // namespace locum::command
