// Package gpu reads one card through NVML: its name, UUID and driver, the
// memory in use and the processes that hold it. It makes no CUDA context, so an
// agent may keep it open while its probes run. It refuses to change any setting
// of the card, and to turn an answer that is not a number into one.
//
// The library is opened at run time without cgo; a missing library or symbol is
// an error with a sentence that says what to do, never a dead process.
//
// Start reading at Open, then Card.Sample.
package gpu
