package config_test

import (
	"reflect"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/internal/config"
)

// FuzzParse: whatever the text, a configuration that means the same when it is
// written and read again, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`apiVersion: oomfleet/v1
queue: {url: "nats://127.0.0.1:4222", lease: 30s}
traces: {url: "https://s3.example", bucket: traces, keep: 168h}
coordinators:
  - {id: a, raft: "127.0.0.1:7401", api: "http://127.0.0.1:7400", data_dir: /tmp/a}
simulated:
  - {driver: 580.159.04-synthetic, context_offset: 40MiB}
`))
	f.Add([]byte("apiVersion: oomfleet/v1\nqueue: &q {url: x}\ntraces: {dir: /t}\ncoordinators: [*q, *q]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fleet, err := config.Parse(text)
		if err != nil {
			if said := err.Error(); len(said) > 4000+400*len(text) {
				t.Errorf("an error of %d bytes about %d: %.300q", len(said), len(text), said)
			}
			return
		}
		again, err := yaml.Marshal(fleet)
		if err != nil {
			t.Fatal(err)
		}
		second, err := config.Parse(again)
		if err != nil || !reflect.DeepEqual(fleet, second) {
			t.Errorf("written again it is %+v, %v\nwas %+v", second, err, fleet)
		}
	})
}
