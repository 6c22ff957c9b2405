// fibers.h - the threads of a program as fibers of one OS thread, under a
// virtual clock.
//
// The library's sources are compiled with HKI_RUNTIME_SIM, so that they use the
// runtime of fibers.c. One fiber runs at a time; a seed decides which one is
// next and when it stops. The clock moves when no fiber can run: it jumps to
// the next deadline. The addresses of the network are memory:NAME.
#ifndef HOOKE_TESTS_SIM_FIBERS_H
#define HOOKE_TESTS_SIM_FIBERS_H
#include <stdint.h>

typedef struct sim_result {
    uint64_t hash;      // of every switch between fibers, and of its time
    long switches;      // between fibers
    long faults;        // connections that were cut
    int64_t elapsed_ns; // virtual
} sim_result;

// Runs `scene` and every thread that it starts until the scene has returned.
//   seed         decides the order of all fibers, random numbers and faults
//   fault_every  one connection is cut in so many switches, on average; 0: none
//   limit_ns     virtual time after which the run is given up
// Threads that the scene leaves running are an error. Errors end the process
// with a message that names the seed.
sim_result sim_run(uint64_t seed, uint64_t fault_every, int64_t limit_ns,
                   void (*scene)(void *), void *user);

// The following are for code inside of a scene.

// Starts a thread.
void *sim_spawn(void (*fn)(void *), void *user);

// Waits until it has returned.
void sim_join(void *thread);

// Waits for some virtual time.
void sim_sleep(int64_t ns);

// The virtual time.
int64_t sim_now(void);

// A number below `n`.
uint64_t sim_draw(uint64_t n);

// No connection is cut from here on.
void sim_heal(void);
#endif
