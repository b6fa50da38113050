/* A crash on disk: what the agent writes where no daemon took its record, and what the daemon takes in later, once.
 *
 * The file is $STACKD_DIR/spool/ID.crash, with mode 0600. The daemon made it and passed it to the agent when that
 * registered (wire.h). Else the agent makes it when it crashes, with its crash id in hex as ID, in a folder closed to
 * others (0700). Where all may write to $STACKD_DIR, the folder is open to them but for its list of names (01733). Then the
 * agent's files are 0644, so that a daemon of another user can read them.
 *
 *     +---------------------------+ 0
 *     | stackd_spool_header       |
 *     +---------------------------+ header_bytes
 *     | slot_count slots          | the chain of a CRASH record (ring_abi.h), in the order of the chain; `next` is not used
 *     +---------------------------+
 *     | /proc/self/maps           | maps_bytes of text
 *     +---------------------------+
 *     | images                    | image_count times: stackd_spool_image, then the first bytes of a mapped file as they
 *     +---------------------------+ are in memory (program headers and build-id)
 *
 * `magic` is written last: a file without it is not finished, since the writer was killed, or the disk was full. THE FILE
 * IS HOSTILE to the daemon, like the ring.
 */
#ifndef STACKD_SPOOL_H_
#define STACKD_SPOOL_H_

#include "stackd/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STACKD_SPOOL_FOLDER "spool"
#define STACKD_SPOOL_SUFFIX ".crash"
#define STACKD_SPOOL_MAGIC 0x31676c7053646b53ull /* "SkdSplg1" */
#define STACKD_SPOOL_IMAGE_BYTES 4096u
#define STACKD_SPOOL_MAX_IMAGES 512u
/* A spool file has no more than this: slots of a ring's crash part, maps, images. */
#define STACKD_SPOOL_MAX_BYTES (8u << 20)

struct stackd_spool_header {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t header_bytes;
  uint32_t slot_count;
  uint32_t maps_bytes;
  uint32_t image_count;
  uint32_t pad;
  uint64_t wall_ns; /* time of the crash since 1970 */
  struct stackd_hello process;
};
STACKD_ABI_ASSERT(sizeof(struct stackd_spool_header) == 40 + sizeof(struct stackd_hello));

struct stackd_spool_image {
  uint64_t address; /* of the mapping in the process */
  uint32_t size_bytes;
  uint32_t pad;
};

#ifdef __cplusplus
}
#endif

#endif /* STACKD_SPOOL_H_ */
