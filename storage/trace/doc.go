// Package trace owns the allocator traces of runs: their file format and the
// store that keeps them, with the evidence of results and the programs that were
// made from traces beside them.
//
// A trace file is Parquet with zstd: one row an event of the caching
// allocator, in order, in the columns action, addr, size, stream and
// optionally time_us; what is known of the run is key-value metadata (Meta).
// Any data tool reads it straight from the store. Encode and Decode are the
// only code that knows the format.
//
// A Store names every object by the SHA-256 of its bytes, so that putting
// twice is harmless, an object can be checked by anyone, and nothing in a name
// needs escaping: traces/<digest>.parquet, evidence/<digest>.json and
// programs/<digest>.json. A put returns only after the stored bytes were read back and hashed; a read never
// hands out bytes of another hash as good.
//
// The package refuses to know where objects lie: that is a Driver (s3x for S3,
// dir for a folder), held to its contract by the suite in tracetest. It also
// refuses to replay or to interpret events: that is package allocator.
//
// Start reading at Store, then Driver and Decode.
package trace
