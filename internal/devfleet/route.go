package devfleet

import (
	"fmt"
	"path/filepath"
	"slices"
)

// configOf is the configuration file of one process: the fleet's own, or with
// Config.Via one in which the others have other addresses.
func (f *Fleet) configOf(name string) string {
	if f.cfg.Via == nil {
		return f.ConfigFile()
	}
	return filepath.Join(f.dir, "fleet-"+name+".yaml")
}

// routeAll writes the configuration of each process, if they have their own.
func (f *Fleet) routeAll() error {
	if f.cfg.Via == nil {
		return nil
	}
	var names []string
	for _, c := range f.conf.Coordinators {
		names = append(names, "coordinator-"+c.ID)
	}
	for i := range f.cfg.Agents {
		names = append(names, agentName(i))
	}
	for _, name := range names {
		if err := f.route(name); err != nil {
			return fmt.Errorf("route %s: %w", name, err)
		}
	}
	return nil
}

// route leaves a process's own addresses as they are: it listens there.
func (f *Fleet) route(name string) error {
	own := f.conf
	own.Coordinators = slices.Clone(f.conf.Coordinators)
	queue, err := f.cfg.Via(name, "queue", hostPort(own.Queue.URL))
	if err != nil {
		return err
	}
	traces, err := f.cfg.Via(name, "s3", hostPort(own.Traces.URL))
	if err != nil {
		return err
	}
	own.Queue.URL, own.Traces.URL = "nats://"+queue, f.scheme()+traces
	for i, c := range own.Coordinators {
		if "coordinator-"+c.ID == name || name[:1] == "a" { // agents do not speak raft
			continue
		}
		if own.Coordinators[i].Raft, err = f.cfg.Via(name, "coordinator-"+c.ID, c.Raft); err != nil {
			return err
		}
	}
	return own.Write(f.configOf(name))
}
