// Package devfleet runs a whole fleet on one machine: the queue, the S3 server,
// coordinators and agents, each a process of its own and a re-execution of
// fleetctl, on random ports of the loopback interface. `fleetctl dev` is it, and
// the end-to-end tests kill its processes.
//
// It refuses to share anything between the processes but what a real fleet
// shares: the configuration file, the network, and the store's keys in the
// environment. A process that dies is started again, on the same address.
//
// Start reading at Config and Fleet.Run; process.go is one supervised child.
package devfleet
