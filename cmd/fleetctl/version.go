package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/proto"
)

// version is set at build time (-X main.version=...); empty takes what the Go
// tool knows.
var version = ""

// build is what `fleetctl version --json` prints.
type build struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: version, Protocol: proto.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b.Version == "" {
		b.Version = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			b.Version = info.Main.Version
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version of this build", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if a.json {
				return writeJSON(a.out, b)
			}
			_, err := fmt.Fprintf(a.out, "fleetctl %s (protocol %d, %s, %s)\n", b.Version, b.Protocol, b.Go, b.Platform)
			return err
		}}
}
