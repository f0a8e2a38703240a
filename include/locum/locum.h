/* The Locum worker library: what a training process needs to keep training when nodes fail.
 *
 * The contract. Between two commits each rank completes collectives that depend on an input of every rank made
 * after that rank's previous commit (synchronous data, tensor, pipeline and ZeRO training do). The state that is
 * registered changes only between locum_begin_update and locum_end_update; buffers of collectives are not
 * registered. Data and random seeds of a step are functions of the step, see locum_step.
 *
 * The loop:
 *
 *   locum_job* job;
 *   locum_join(&options, &job);
 *   locum_register_memory(job, "weights", data, bytes, NULL);          every rank the same, in the same order
 *   locum_step step;
 *   while ((rc = locum_next_step(job, &step)) == 1) {
 *     if (step.regrouped) {
 *       connect to the peers, or locum_broken(job, why) and continue;
 *       locum_connected(job);
 *     }
 *     compute;  locum_report_loss(job, loss);
 *     locum_enter_collective(job);
 *     if (the collective failed) { locum_broken(job, why); continue; }
 *     if (locum_begin_update(job) == LOCUM_OK) { update; locum_end_update(job); }
 *   }
 *   locum_finish(job);
 *
 * Threads. One thread, the trainer's, calls everything but where noted. The library runs threads of its own: one
 * listens to the node, others serve state to other workers. Callbacks say which thread calls them.
 *
 * Errors. Functions return LOCUM_OK or a negative LOCUM_E code; locum_last_error() has the text for the calling
 * thread. The library never prints, never exits and never throws; it ignores SIGPIPE if the program has no
 * handler of its own.
 */
#ifndef LOCUM_LOCUM_H_
#define LOCUM_LOCUM_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LOCUM_API __attribute__((visibility("default")))
#else
#define LOCUM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct locum_job locum_job;

enum {
  LOCUM_OK = 0,
  LOCUM_E_INVALID = -1,     /* a wrong argument, or a call out of order */
  LOCUM_E_UNAVAILABLE = -2, /* the node's agent cannot be reached; was this started by `locum run` or an agent? */
  LOCUM_E_REFUSED = -3,  /* this worker may not take part: version, layout or fingerprint differ; the text names both */
  LOCUM_E_RECOVERY = -4, /* a recovery began: leave the step and call locum_next_step */
  LOCUM_E_TIMEOUT = -5,  /* the deadline given has passed */
  LOCUM_E_INTERNAL = -6
};

/* The text of the last error of the calling thread; valid until its next call into the library. Never NULL. */
LOCUM_API const char* locum_last_error(void);
/* "0.1.0" */
LOCUM_API const char* locum_version(void);
/* 1 when this process was started by Locum (LOCUM_SOCKET is set), else 0. */
LOCUM_API int locum_available(void);

typedef struct locum_options {
  size_t struct_size;       /* sizeof(locum_options) */
  uint64_t total_steps;     /* NextStep ends the loop at this state; 0: the program calls locum_stop */
  const char* fingerprint;  /* "key=value" lines: whatever must be equal on all ranks for equal bits, may be NULL */
  uint32_t join_timeout_ms; /* to reach the node; 0: 10 s */
} locum_options;

/* Joins the job that started this process. Blocks up to join_timeout_ms. Once per process. */
LOCUM_API int locum_join(const locum_options* options, locum_job** job);

/* Leaves. Without locum_finish before it, the node takes it for a failure of this worker. */
LOCUM_API void locum_leave(locum_job* job);

/* ---- Registered state. Before the first locum_next_step; same names, sizes and order on every rank. ---- */

/* Access to a shard that is not plain memory. Any thread of the library may call them, never two at once for one
 * shard, and never `write` while the trainer's thread is outside locum_next_step and locum_finish. Return 0, or
 * anything else for failure. [offset, offset+bytes) lies within the shard. */
typedef int (*locum_read_fn)(void* context, uint64_t offset, void* destination, size_t bytes);
typedef int (*locum_write_fn)(void* context, uint64_t offset, const void* source, size_t bytes);

/* `group` names the ranks that hold the same bytes; NULL is "all". Other groups ("owned" state that only one rank
 * holds, for instance) are not supported yet and give LOCUM_E_INVALID. The memory stays the caller's and must
 * outlive the job. Names are unique, 1 to 255 bytes. */
LOCUM_API int locum_register_memory(locum_job* job, const char* name, void* data, uint64_t bytes, const char* group);
LOCUM_API int locum_register(locum_job* job, const char* name, uint64_t bytes, locum_read_fn read, locum_write_fn write,
                             void* context, const char* group);

/* `abort` makes a running collective of this process fail soon (closes its connections, say). It is called from a
 * thread of the library, once for each generation that is broken off while the trainer's thread is not in
 * locum_next_step, and must not wait for the collective.
 *
 * Optional. Without it at once, with it when it has not helped within 100 ms, the library shuts down (not closes) the
 * group's TCP connections, until the thread is in locum_next_step: a recv, send, connect or poll of the program on them
 * then ends. The group's are those that are new between the locum_next_step that returned `regrouped` and
 * locum_connected, so whatever else a program opens in between is taken for them, and what its group opens later is
 * not. Listening sockets, and sockets that are not TCP, are left alone: a wait on these needs a time limit of its own,
 * or `abort`. A thread that still does not come is ended with its process by the node (timeouts.collective, .park). */
typedef void (*locum_abort_fn)(void* context);
LOCUM_API int locum_set_abort(locum_job* job, locum_abort_fn abort, void* context);

/* ---- The step loop ---- */

typedef struct locum_step {
  size_t struct_size; /* set by the caller */
  uint64_t step;      /* the state that is held; this step makes step+1 */
  uint64_t generation;
  uint32_t rank;
  uint32_t world_size;
  uint32_t regrouped; /* 1: membership changed (also at the very first step); connect anew, then locum_connected */
  uint32_t reserved;
  uint64_t seed;          /* a function of (job seed, step, rank); seed the generators from it */
  uint64_t data_position; /* step * world_size + rank: which piece of the data this rank takes */
  uint64_t state_hash; /* when regrouped: of the registered state, as all ranks verified it; compare it, with generation
                             and step, in the first collective of the new group. Else 0 */
} locum_step;

/* 1: train this step. 0: the job has reached its last step; call locum_finish; `step`, `generation`, `rank` and
 * `world_size` tell where. Negative: an error, the worker must end. Blocks while a recovery or a planned move runs, and
 * on a spare until it is needed. On a spare that is never needed it does not return: when the job has ended, the node
 * ends the process by SIGTERM, and by SIGKILL after the grace. What such a process has to put in order, it does in a
 * handler of SIGTERM. (Told that the job finishes while it holds no rank, it would return 0 with `rank` UINT32_MAX.) */
LOCUM_API int locum_next_step(locum_job* job, locum_step* step);

/* The group of this generation is connected: with all connections that it will use, see locum_set_abort. */
LOCUM_API int locum_connected(locum_job* job);
/* This rank's loss in the current step; recorded bit for bit. */
LOCUM_API int locum_report_loss(locum_job* job, double loss);
/* The first collective of the step comes next: from here on this rank waits for the others. */
LOCUM_API int locum_enter_collective(locum_job* job);
/* The collective of this step failed, because of `why`. The step will be tried again in a new generation. */
LOCUM_API int locum_broken(locum_job* job, const char* why);

/* The update window. begin gives LOCUM_E_RECOVERY when a recovery has frozen the state: do not update, call
 * locum_next_step. After LOCUM_OK exactly one of end (the state is complete) and fail (it is torn, this worker
 * cannot go on) follows. No system call in begin and end. */
LOCUM_API int locum_begin_update(locum_job* job);
LOCUM_API int locum_end_update(locum_job* job);
LOCUM_API int locum_fail_update(locum_job* job, const char* why);

/* Makes the state now held the last one; for programs that decide while they train. Every rank must decide the
 * same at the same step. locum_next_step then returns 0. */
LOCUM_API int locum_stop(locum_job* job);

/* Blocks until it is on record that every rank has called it. After LOCUM_OK effects such as a final report happen
 * once. LOCUM_E_INVALID before locum_next_step has returned 0. */
LOCUM_API int locum_finish(locum_job* job);

/* ---- Address exchange: a key-value store of the current generation, on which a communication library builds its
 * group. Any thread. Keys live as long as the generation. Both fail with LOCUM_E_RECOVERY when it ends. ---- */

LOCUM_API int locum_store_set(locum_job* job, const char* key, const void* value, size_t bytes);
/* Waits until the key is there, up to timeout_ms. `*value` is malloc'ed; free it with locum_free. */
LOCUM_API int locum_store_get(locum_job* job, const char* key, uint32_t timeout_ms, void** value, size_t* bytes);
LOCUM_API void locum_free(void* memory);

/* The interface address that the operator named for this node, as a string; listen on it. Never NULL. */
LOCUM_API const char* locum_address(const locum_job* job);
/* The job's seed: initialise the state from it, the same on every rank. */
LOCUM_API uint64_t locum_seed(const locum_job* job);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* LOCUM_LOCUM_H_ */
