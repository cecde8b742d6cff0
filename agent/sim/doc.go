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
// Each run is a real process of its own in its own process group, so that the
// machinery around it (guard, kill, timeout) is really used. Faults make such a
// process misbehave, and Deviations plant behaviour that no predictor knows of;
// both are for tests.
//
// Start reading at Serve, then run.answer.
package sim
