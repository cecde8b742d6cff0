// Package sim is a simulated GPU: a runner process that speaks the protocol of
// package runner and answers from recordings of the real ESMFold on one NVIDIA
// H200 (traces/, made under default settings without a limit), replayed through
// the model of the caching allocator. Between the recorded lengths it plays the
// allocation programs that the recordings give (programs/), whose sizes are
// exact. It refuses to invent: a cell outside their domain, a parameter or a
// variable whose effect was not recorded is answered as unsupported, never
// estimated. Its hello says simulated, so that nothing of it can be taken for a
// measurement.
//
// What is modelled beside the allocator:
//
//   - Bytes outside the allocator (context, modules, libraries) are those of the
//     cell's recording: process peak less reserved peak. A synthetic driver (its
//     name ends in "-synthetic") adds a stated offset; CUDA_MODULE_LOADING=EAGER
//     adds what was recorded for it.
//   - The limit of the driver is the card's total, or the quota when it is of
//     kind device or process, less the bytes outside the allocator. A quota of
//     kind allocator is the cap.
//   - Seconds are a model that was fitted to the recorded runs (modelSeconds);
//     nothing waits for them.
//
// Deviations plant what no predictor knows of, in a share of the cells:
//
//   - adaptive: refused in its forward pass under a quota, the workload catches
//     it, gives back what the pass holds, empties the cache and does the pass
//     again in smaller pieces (each of its largest blocks is smaller by the
//     deviation's bytes, at most by half); a second refusal is final. It takes
//     the card for both attempts, and its trace shows both and the refusal.
//     Recordings and programs are those of a plain cell: without a quota nothing
//     is refused.
//   - extra: every run under a quota holds one more block.
//   - order: large blocks are freed a little later, differently from run to run.
//
// Each run is a real process of its own in its own process group, so that the
// machinery around it (guard, kill, timeout) is really used. The check of a card
// is one too, and passes unless a fault is planted. Faults make such a
// process misbehave; they and deviations are for tests.
//
// Start reading at Serve, then run.answer.
package sim
