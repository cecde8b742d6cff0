// Package allocator owns the model of PyTorch's CUDA caching allocator and what
// is read off it: the replay of a recorded trace under any cap and settings,
// the self-check of a recording, the exact sweep over all quotas, and allocation
// programs, which say what runs of other lengths and batches do. It is pure: no
// I/O, no clock, no goroutine. It refuses to guess: a trace that the
// model does not place where the real allocator placed it is reported, and a
// setting that it does not model is an error.
//
// The rules are those of torch 2.11 (native backend, one device): rounding to
// 512 bytes, a small and a large pool, best fit with address order on ties,
// splitting, merging inside a driver segment, release of oversize blocks, flush
// and retry, garbage collection, expandable segments, and frees deferred by
// record_stream. Private pools (graphs, MemPool) are not modelled.
//
// Start reading at Event and Settings, then Allocator.Malloc, then Program,
// which is a compiled trace with Replay, SelfCheck and Sweep, then Family, which
// gives a Program for cells that nobody recorded.
package allocator
