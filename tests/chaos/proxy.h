// chaos/proxy.h - a TCP proxy in user space that a test can make slow, deaf
// or rude. One thread moves all bytes.
//
// Threads: any thread may call.
#ifndef CHAOS_PROXY_H
#define CHAOS_PROXY_H
#include <stdbool.h>
#include <stdint.h>

typedef struct proxy proxy;

proxy *proxy_start(void); // NULL: no memory, no sockets
void proxy_stop(proxy *p);

// A link: listens at 127.0.0.1:*port and forwards to 127.0.0.1:target.
// Returns its number, -1 when there is no room or no port.
int proxy_add(proxy *p, uint16_t target, uint16_t *port);
// Bytes come so much later, in both directions.
void proxy_delay(proxy *p, int link, int ms);
// Partition: nothing moves, new connections are not answered.
void proxy_block(proxy *p, int link, bool on);
// Every connection of the link is reset.
void proxy_cut(proxy *p, int link);
// All links together move at most so many bytes a second in each direction;
// 0: no limit. What is not moved waits, as in a router's queue.
void proxy_rate(proxy *p, double bytes_per_second);
// Bytes moved over all links, to the targets and back.
void proxy_bytes(proxy *p, uint64_t *up, uint64_t *down);

#endif // CHAOS_PROXY_H
