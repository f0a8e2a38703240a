// What must hold between values, whoever set them.
#include "adapters/config/config.h"

namespace locum {
namespace {

class Checker {
 public:
  explicit Checker(const Config& config) : config_(config) {}

  // `longer` must be at least `shorter`.
  void AtLeast(const char* longer, Duration a, const char* shorter, Duration b, const char* why) {
    AtLeast(longer, a, "", shorter, b, b, why);
  }
  // `longer` must be at least `needed`, which is `part` of `shorter`.
  void AtLeast(const char* longer, Duration a, const char* part, const char* shorter, Duration b, Duration needed,
               const char* why) {
    if (!error_.ok() || a >= needed) return;
    // The complaint goes to a value that was set; a default is at fault only when both are.
    const char* blamed = config_.Has(longer) || !config_.Has(shorter) ? longer : shorter;
    error_ = Invalid(Where(blamed) + blamed + ": " + longer + " (" + FormatDuration(a) + Origin(longer) +
                     ") must be at least " + part + shorter + " (" + FormatDuration(b) + Origin(shorter) + "): " + why +
                     "; in the config file (--config) set " + longer + " to " + FormatDuration(needed) +
                     " or more, or lower " + shorter);
  }
  void Positive(const char* key, Duration a) {
    if (error_.ok() && a < std::chrono::milliseconds(1)) {
      error_ = Invalid(Where(key) + key + ": " + FormatDuration(a) + " is less than 1ms");
    }
  }
  void Fail(const char* key, const std::string& why) {
    if (error_.ok()) error_ = Invalid(Where(key) + key + ": " + why);
  }
  Status error() const { return error_; }

 private:
  std::string Where(const char* key) const { return config_.Has(key) ? config_.origin.at(key) + ": " : ""; }
  std::string Origin(const char* key) const { return config_.Has(key) ? "" : ", the default"; }
  const Config& config_;
  Status error_;
};

}  // namespace

Status CheckConfig(const Config& config) {
  const Timeouts& t = config.timeouts;
  Checker check(config);
  check.Positive("timeouts.heartbeat", t.heartbeat);
  check.Positive("timeouts.silence", t.silence);
  check.Positive("timeouts.freeze", t.freeze);
  check.Positive("timeouts.collective", t.collective);
  check.Positive("timeouts.park", t.park);
  check.Positive("timeouts.join", t.join);
  check.Positive("timeouts.hang", t.hang);
  check.Positive("timeouts.finish", t.finish);
  check.Positive("timeouts.adopt", t.adopt);
  check.AtLeast("timeouts.silence", t.silence, "half of ", "timeouts.heartbeat", t.heartbeat, t.heartbeat / 2,
                "a node whose reports are late a few times would look dead");
  check.AtLeast("timeouts.culprit_grace", t.culprit_grace, "timeouts.lost_stream_grace", t.lost_stream_grace,
                "the same members would be tried again before a lost node is failed");
  check.AtLeast("timeouts.park", t.park, "timeouts.collective", t.collective,
                "a rank could be killed for not parking while it may still leave its collective");
  check.AtLeast("timeouts.join", t.join, "timeouts.gather", t.gather,
                "the start would be given up while it still waits for spares");
  check.AtLeast("timeouts.collective", t.collective, "timeouts.culprit_grace", t.culprit_grace,
                "a rank could be killed before it is known who failed");
  check.AtLeast("timeouts.adopt", t.adopt, "timeouts.silence", t.silence,
                "a new coordinator would give nodes up before they can come back");
  check.AtLeast("timeouts.hang", t.hang, "timeouts.silence", t.silence,
                "a rank would count as hung before its node counts as silent");
  check.AtLeast("timeouts.finish", t.finish, "timeouts.grace", t.grace,
                "the end would be given up while workers still have time to leave");
  check.AtLeast("run.restart_delay_max", config.restart_delay_max, "run.restart_delay", config.restart_delay,
                "the delay grows up to it");
  if (config.Has("coordinator.listen") && config.Has("coordinator.interface")) {
    check.Fail("coordinator.interface", "is set together with coordinator.listen, which names the address already");
  }
  if (config.Has("coordinator.listen") && config.Has("coordinator.port")) {
    check.Fail("coordinator.port", "is set together with coordinator.listen, which names the port already");
  }
  if (config.recovery_worker != "restart" && config.recovery_worker != "spare") {
    check.Fail("recovery.worker", "is '" + config.recovery_worker + "'; it can be \"restart\" or \"spare\"");
  }
  check.Positive("limits.window", config.limit_window);
  if (uint64_t{config.nodes} * config.nproc_per_node > kMaxWorld) {
    const char* blamed = config.Has("job.nodes") ? "job.nodes" : "job.nproc_per_node";
    check.Fail(blamed, std::to_string(config.nodes) + " nodes with " + std::to_string(config.nproc_per_node) +
                           " workers each are more than " + std::to_string(kMaxWorld) + " ranks");
  }
  if (config.Has("job.command") && config.command.empty()) check.Fail("job.command", "is empty");
  return check.error();
}

}  // namespace locum
