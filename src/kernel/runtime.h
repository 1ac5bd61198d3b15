/* The generated code's side of the room: its declarations, and what is called by it. */
#pragma once

#include "kernel/parts.h"

/* Names of the generated code's, the same for every guest. */
typedef uint32_t u32;
typedef uint64_t u64;
struct Z_host_instance_t;
struct Z_wasi_snapshot_preview1_instance_t;

u32 Z_hostZ_call(struct Z_host_instance_t *host, u32 op, u32 op_size, u32 meta, u32 meta_size,
                 u32 bytes, u32 bytes_size, u32 sizes);
u32 Z_hostZ_begin(struct Z_host_instance_t *host, u32 op, u32 op_size, u32 meta, u32 meta_size,
                  u32 bytes, u32 bytes_size, u32 sizes);
void Z_hostZ_take(struct Z_host_instance_t *host, u32 meta, u32 bytes);
u32 Z_wasi_snapshot_preview1Z_clock_time_get(struct Z_wasi_snapshot_preview1_instance_t *wasi,
                                             u32 clock, u64 precision, u32 at);
u32 Z_wasi_snapshot_preview1Z_fd_close(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd);
u32 Z_wasi_snapshot_preview1Z_fd_fdstat_get(struct Z_wasi_snapshot_preview1_instance_t *wasi,
                                            u32 fd, u32 at);
u32 Z_wasi_snapshot_preview1Z_fd_seek(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd,
                                      u64 offset, u32 whence, u32 at);
u32 Z_wasi_snapshot_preview1Z_fd_write(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd,
                                       u32 vectors, u32 count, u32 at);

/* The context that this thread is in, or boots; NULL: none. */
extern _Thread_local struct kernel_context *runtime_context;

double kernel_nearest(double x);

/* Nothing writes to it any more. */
void runtime_table_seal(const wasm_rt_funcref_table_t *table);
