// Package api owns the HTTP interface of a coordinator: JSON in and out, an
// OpenAPI 3.1 document generated from the Go types (/openapi.json), health and
// metrics. It refuses to decide anything: reads answer from this node's view of
// the registry, with the index they hold at; writes go to the coordinator, on
// whichever node leads. It also holds the Go client that fleetctl uses.
//
// Every answer names the log position that it was read at, and how old that may
// be; a read may ask to be consistent or at most so old. A write that reaches a
// follower is passed on to the leader once; a second hop is refused.
//
// Start reading at New, then sweeps.go; Client is the other side.
package api
