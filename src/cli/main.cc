// The command line: flags, keys of the config file they stand for, and help.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "adapters/grpc/channel.h"
#include "adapters/posix/stacks.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/files.h"
#include "cli/usage.h"

namespace locum {
namespace {

constexpr const char* kFooter =
    "Exit status: run and coordinator end with the job's own status, and with\n"
    "  1    it did not work (a wrong token, an unreachable coordinator, a full disk)\n"
    "  2    something in flags, config, DIR or port is for you to change\n"
    "  126  the command is not executable       127  the command does not exist\n"
    "  129  stopped by SIGHUP                   130  stopped by Ctrl-C (SIGINT)\n"
    "  143  stopped by SIGTERM\n";

// Flags that stand for keys of the config file, collected as text and applied over the file.
class KeyedFlags {
 public:
  void Add(CLI::App* app, const std::string& flag, const std::string& key, const std::string& type,
           const std::string& help) {
    Given& given = values_[key];
    given.flag = flag;
    app->add_option(flag, given.value, help)->type_name(type)->each([&given](const std::string&) { given.set = true; });
  }
  void AddSwitch(CLI::App* app, const std::string& flag, const std::string& key, const std::string& value,
                 const std::string& help) {
    Given& given = values_[key];
    given.flag = flag;
    app->add_flag_callback(
        flag, [&given, value] { given.value = value, given.set = true; }, help);
  }
  void AddConfig(CLI::App* app) {
    app->add_option("--config", file_, "settings in TOML; flags override them")->type_name("FILE");
  }
  Result<Config> Resolve() const {
    Config config;
    if (!file_.empty()) {
      auto loaded = LoadConfig(file_);
      if (!loaded.ok()) return loaded;
      config = *loaded;
    }
    for (const auto& [key, given] : values_) {
      if (given.set) LOCUM_RETURN_IF_ERROR(SetFromFlag(key, given.flag, given.value, &config));
    }
    LOCUM_RETURN_IF_ERROR(CheckConfig(config));
    return config;
  }
  // The same flags again, for a child; not those whose key begins with `but`.
  std::vector<std::string> Again(const std::string& but) const {
    std::vector<std::string> words;
    if (!file_.empty()) words.insert(words.end(), {"--config", file_});
    for (const auto& [key, given] : values_) {
      if (given.set && key.rfind(but, 0) != 0 && key != "job.dir") words.insert(words.end(), {given.flag, given.value});
    }
    return words;
  }

 private:
  struct Given {
    std::string flag, value;
    bool set = false;
  };
  std::map<std::string, Given> values_;
  std::string file_;
};

// The usage line of a subcommand that ends with a command to be run.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const std::string& own = app->get_name();
    if (own == "run") return "\nUsage: locum run [OPTIONS] -- COMMAND...\n";
    if (own == "coordinator") return "\nUsage: locum coordinator [OPTIONS] --dir DIR [-- COMMAND...]\n";
    if (own == "agent") return "\nUsage: locum agent --coordinator HOST:PORT [OPTIONS]\n";
    return CLI::Formatter::make_usage(app, name);
  }
};

void AddJobFlags(CLI::App* app, KeyedFlags* flags) {
  flags->Add(app, "--nodes", "job.nodes", "N", "nodes that train (1)");
  flags->Add(app, "--spares", "job.spares", "K", "nodes that stand ready (0)");
  flags->Add(app, "--nproc-per-node", "job.nproc_per_node", "M", "training processes on each node (1)");
  flags->Add(app, "--seed", "job.seed", "S", "seed handed to the training program (0)");
  flags->Add(app, "--grace", "timeouts.grace", "D", "from SIGTERM to SIGKILL, as in 5s or 500ms (5s)");
  flags->Add(app, "--dir", "job.dir", "DIR", "where state, history and logs go (./.locum/<job>)");
  flags->AddConfig(app);
}

void AddTarget(CLI::App* app, Target* target) {
  auto* dir = app->add_option("--dir", target->dir, "the job's directory (./.locum/latest)")->type_name("DIR");
  app->add_option("--coordinator", target->coordinator, "ask the coordinator there instead")
      ->type_name("HOST:PORT")
      ->excludes(dir);
  app->add_option("--token-file", target->token_file, "file with the job's token; else LOCUM_TOKEN, else DIR/token")
      ->type_name("FILE");
}

struct CommandLine {
  std::vector<std::string> own;      // up to "--"
  std::vector<std::string> command;  // behind it
  bool separated = false;
};

CommandLine Split(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    if (!line.separated && std::string(argv[i]) == "--") {
      line.separated = true;
    } else {
      (line.separated ? line.command : line.own).push_back(argv[i]);
    }
  }
  return line;
}

class Program {
 public:
  explicit Program(CommandLine line) : line_(std::move(line)) {
    app_.set_version_flag("--version", std::string("locum ") + kVersion);
    app_.require_subcommand(1);
    app_.formatter(std::make_shared<Formatter>());  // before the subcommands, which inherit it
    app_.footer(kFooter);
    DefineRun();
    DefineCoordinator();
    DefineAgent();
    DefineQuestions();
  }

  int Main() {
    if (std::string empty = EmptyWord(line_.own); !empty.empty()) return Complain(empty, kExitUsage);
    std::vector<std::string> reversed(line_.own.rbegin(), line_.own.rend());
    try {
      app_.parse(reversed);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // help, version
      return Complain(ExplainParseError(error, Named(), line_.own, line_.separated), kExitUsage);
    }
    for (const auto& [app, action] : actions_) {
      if (app->parsed()) return action();
    }
    return kExitUsage;
  }

 private:
  // The subcommand that is meant, else the program.
  const CLI::App& Named() const {
    for (const auto& [app, action] : actions_) {
      if (!line_.own.empty() && app->get_name() == line_.own[0]) return *app;
    }
    return app_;
  }

  void DefineRun() {
    auto* app = app_.add_subcommand("run", "run a command on a whole local cluster");
    app->footer(std::string("Starts a coordinator and N+K nodes on this machine, and ends with the job. Rank 0's "
                            "output goes to standard\noutput, progress and events to standard error; everything is "
                            "kept in DIR.\n") +
                kFooter);
    AddJobFlags(app, &run_flags_);
    run_flags_.AddSwitch(app, "--no-restart", "run.restart_nodes", "false", "do not start a node again that died");
    actions_.emplace_back(app, [this] {
      auto config = run_flags_.Resolve();
      if (!config.ok()) return Complain(config.status().message(), kExitUsage);
      RunArgs args{*config, line_.command.empty() ? config->command : line_.command, run_flags_.Again("run.")};
      if (args.command.empty()) return Complain("no command; locum run [options] -- COMMAND...", kExitUsage);
      return RunMain(args);
    });
  }

  void DefineCoordinator() {
    auto* app = app_.add_subcommand("coordinator", "decide for one job; agents connect to it");
    app->footer(std::string("Without COMMAND, or with the same one, it takes up the unfinished job in DIR. Agents and "
                            "the other subcommands\nneed the token in DIR/token.\n") +
                kFooter);
    AddJobFlags(app, &coordinator_flags_);
    coordinator_flags_.Add(app, "--listen", "coordinator.listen", "HOST:PORT",
                           "address to listen on (127.0.0.1, any port)");
    coordinator_flags_.Add(app, "--port", "coordinator.port", "P", "port to listen on (any)");
    coordinator_flags_.Add(app, "--interface", "coordinator.interface", "IF", "listen on this interface's address");
    coordinator_flags_.Add(app, "--token-file", "coordinator.token_file", "FILE",
                           "file with the job's token; else LOCUM_TOKEN, else DIR/token, made when absent");
    app->add_option("--job", coordinator_.job)->group("");
    app->add_option("--lock-fd", coordinator_.lock_fd)->group("");
    app->add_option("--local-port", coordinator_.local_port)->group("");
    app->add_option("--parent-pidfd", coordinator_.parent_pidfd)->group("");
    actions_.emplace_back(app, [this] {
      auto config = coordinator_flags_.Resolve();
      if (!config.ok()) return Complain(config.status().message(), kExitUsage);
      coordinator_.config = *config;
      coordinator_.command = line_.command.empty() ? config->command : line_.command;
      return CoordinatorMain(coordinator_);
    });
  }

  void DefineAgent() {
    auto* app = app_.add_subcommand("agent", "make this machine (or this slot of it) a node of a job");
    app->footer(kFooter);
    agent_flags_.Add(app, "--coordinator", "agent.coordinator", "HOST:PORT", "the job's coordinator");
    agent_flags_.Add(app, "--name", "agent.name", "NAME", "the node's name (the host's name)");
    agent_flags_.Add(app, "--dir", "agent.dir", "DIR", "logs and sockets, one per agent (./.locum/agents/<name>)");
    agent_flags_.Add(app, "--interface", "agent.interface", "IF",
                     "network interface of the node (the one towards the coordinator)");
    agent_flags_.Add(app, "--token-file", "agent.token_file", "FILE", "file with the job's token; else LOCUM_TOKEN");
    agent_flags_.Add(app, "--connect-timeout", "agent.connect_timeout", "D",
                     "how long to try to reach the coordinator at first (60s)");
    agent_flags_.AddConfig(app);
    app->add_option("--parent-pidfd", agent_.parent_pidfd)->group("");
    actions_.emplace_back(app, [this] {
      auto config = agent_flags_.Resolve();
      if (!config.ok()) return Complain(config.status().message(), kExitUsage);
      if (config->coordinator.empty()) return Complain("--coordinator HOST:PORT is missing", kExitUsage);
      agent_.config = *config;
      return AgentMain(agent_);
    });

    auto* daemon = app_.add_subcommand("agentd", "")->group("");
    daemon->add_option("--coordinator", agentd_.coordinator)->required();
    daemon->add_option("--dir", agentd_.dir)->required();
    daemon->add_option("--name", agentd_.name)->required();
    daemon->add_option("--address", agentd_.address)->required();
    daemon->add_option("--interface", agentd_.interface_name);
    daemon->add_option("--keeper-fd", agentd_.keeper_fd)->required();
    actions_.emplace_back(daemon, [this] { return AgentdMain(agentd_); });
  }

  void DefineQuestions() {
    auto* status = app_.add_subcommand("status", "show a job, its nodes and ranks");
    status->footer(
        "Answers from DIR when no coordinator runs. Exit status: 0, 1 when there is no answer, 2 for bad use.");
    AddTarget(status, &target_);
    status->add_flag("--json", json_, "for programs");
    actions_.emplace_back(status, [this] { return StatusMain(target_, json_); });

    auto* events = app_.add_subcommand("events", "show a job's history");
    events->footer("Exit status: 0, 1 when there is no answer, 2 for bad use.");
    AddTarget(events, &target_);
    events->add_flag("--json", json_, "one JSON object a line, as in DIR/events.jsonl");
    events->add_flag("--follow", follow_, "go on with what happens, until the coordinator ends");
    actions_.emplace_back(events, [this] { return EventsMain(target_, json_, follow_); });

    auto* failback = app_.add_subcommand("failback", "give a repaired node its rank back");
    failback->footer(
        "Returns when the move was accepted. Exit status: 0, 1 when it is refused or fails, 2 for bad use.");
    AddTarget(failback, &target_);
    failback->add_option("NODE", node_, "the node's name")->required();
    failback->add_flag("--wait", wait_, "return when the node has its rank again");
    actions_.emplace_back(failback, [this] { return FailbackMain(target_, node_, wait_); });

    auto* adopt = app_.add_subcommand("adopt", "take over nodes whose coordinator's database is lost");
    adopt->footer(
        "To the coordinator that was started in the lost one's place. Exit status: 0, 1 when it is refused, 2 for bad "
        "use.");
    AddTarget(adopt, &target_);
    actions_.emplace_back(adopt, [this] { return AdoptMain(target_); });

    auto* stacks = app_.add_subcommand("stacks", "")->group("");
    stacks->add_option("PID", pid_)->required();
    stacks->add_option("FILE", node_)->required();
    actions_.emplace_back(stacks, [this] {
      Status written = WriteStacks(pid_, node_);
      return written.ok() ? kExitOk : Complain(written.message(), kExitFailed);
    });

    auto* replay = app_.add_subcommand("replay", "step through the logged decisions of a run again");
    replay->footer(
        "Decides again from DIR/inputs-<term>.log and compares. Exit status: 0, 1 when an answer differs, 2 for bad "
        "use.");
    replay->add_option("DIR", target_.dir, "the directory of a coordinator")->required();
    replay->add_flag("--verbose", json_, "print every input and answer");
    actions_.emplace_back(replay, [this] { return ReplayMain(target_.dir, json_); });
  }

  CommandLine line_;
  CLI::App app_{"Locum: training goes on when a node fails, on a spare, without losing a step", "locum"};
  std::vector<std::pair<CLI::App*, std::function<int()>>> actions_;
  KeyedFlags run_flags_, coordinator_flags_, agent_flags_;
  CoordinatorArgs coordinator_;
  AgentArgs agent_;
  AgentdArgs agentd_;
  Target target_;
  std::string node_;
  int pid_ = 0;
  bool json_ = false, follow_ = false, wait_ = false;
};

}  // namespace
}  // namespace locum

int main(int argc, char** argv) {
  locum::OpenStandardDescriptors();
  locum::QuietGrpc();
  return locum::Program(locum::Split(argc, argv)).Main();
}
