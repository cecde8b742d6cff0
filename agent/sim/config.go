package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// What was recorded (agent/sim/traces); every simulated agent presents it.
const (
	GPU          = "NVIDIA H200"
	Driver       = "580.159.04"
	CUDA         = "13.0"
	Torch        = "2.11.0+cu130"
	Transformers = "5.17.0"
	Total        = proto.Bytes(150_109_880_320)
)

// SyntheticSuffix ends the name of every driver that is not the recorded one.
const SyntheticSuffix = "-synthetic"

// Config says what a simulated card is like. The zero value is the recorded one.
type Config struct {
	// Driver is the recorded driver when empty; any other name ends in
	// SyntheticSuffix.
	Driver string
	// ContextOffset is what a synthetic driver's context takes more (or less)
	// than the recorded one's.
	ContextOffset proto.Bytes
	// Card tells the simulated cards of a fleet apart; the UUID follows from it
	// and from the driver, and is the same at every start.
	Card int
	// Fault makes every run misbehave (see Fault); TestWorkloads lets a single
	// run choose one by its workload's name, "sim:<fault>".
	Fault         Fault
	TestWorkloads bool
	Deviations    Deviations
}

func (c Config) driver() string {
	if c.Driver == "" {
		return Driver
	}
	return c.Driver
}

// UUID is the card's stable name.
func (c Config) UUID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", c.driver(), c.Card))
	return "SIM-" + hex.EncodeToString(sum[:8])
}

// Validate reports everything that is wrong, at once.
func (c Config) Validate() error {
	var errs []error
	synthetic := strings.HasSuffix(c.driver(), SyntheticSuffix)
	if c.driver() != Driver && !synthetic {
		errs = append(errs, fmt.Errorf("driver %q was not recorded: use %s, or a name that ends in %s", c.Driver, Driver, SyntheticSuffix))
	}
	if c.ContextOffset != 0 && !synthetic {
		errs = append(errs, fmt.Errorf("a context offset needs a driver whose name ends in %s", SyntheticSuffix))
	}
	if offset := c.ContextOffset; offset < -512*proto.MiB || offset > 16*proto.GiB {
		errs = append(errs, fmt.Errorf("context offset %v is not between -512 MiB and 16 GiB", offset))
	}
	return errors.Join(append(errs, c.Fault.validate(), c.Deviations.validate())...)
}

// Flags are the arguments from which ParseFlags makes c again.
func (c Config) Flags() []string {
	args := []string{fmt.Sprintf("--card=%d", c.Card)}
	add := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	add("driver", c.Driver)
	if c.ContextOffset != 0 {
		add("context-offset", fmt.Sprint(int64(c.ContextOffset)))
	}
	add("fault", string(c.Fault))
	if c.TestWorkloads {
		add("test-workloads", "true")
	}
	if d := c.Deviations; d.Share > 0 {
		add("deviate", fmt.Sprint(d.Share))
		add("deviate-seed", fmt.Sprint(d.Seed))
		kinds := make([]string, len(d.Kinds))
		for i, k := range d.Kinds {
			kinds[i] = string(k)
		}
		add("deviate-kinds", strings.Join(kinds, ","))
	}
	return args
}

// ParseFlags reads the arguments of the hidden subcommand that calls Serve.
func ParseFlags(args []string) (Config, error) {
	var c Config
	flags := flag.NewFlagSet("simrunner", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.Driver, "driver", "", "driver to present; another than the recorded one ends in "+SyntheticSuffix)
	flags.Func("context-offset", "bytes that a synthetic driver's context takes more", func(text string) (err error) {
		digits, negative := strings.CutPrefix(text, "-")
		c.ContextOffset, err = proto.ParseBytes(digits)
		if negative {
			c.ContextOffset = -c.ContextOffset
		}
		return err
	})
	flags.IntVar(&c.Card, "card", 0, "number of the simulated card")
	flags.StringVar((*string)(&c.Fault), "fault", "", "make every run misbehave (tests)")
	flags.BoolVar(&c.TestWorkloads, "test-workloads", false, "let workloads named sim:<fault> misbehave (tests)")
	flags.Float64Var(&c.Deviations.Share, "deviate", 0, "share of cells that deviate from the allocator's model (tests)")
	flags.Uint64Var(&c.Deviations.Seed, "deviate-seed", 0, "seed of the deviations")
	flags.Func("deviate-kinds", "comma-separated kinds of deviation", func(text string) error {
		for kind := range strings.SplitSeq(text, ",") {
			c.Deviations.Kinds = append(c.Deviations.Kinds, DeviationKind(kind))
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return Config{}, fmt.Errorf("simulated runner: %w", err)
	}
	if flags.NArg() > 0 {
		return Config{}, fmt.Errorf("simulated runner: unexpected argument %q", flags.Arg(0))
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("simulated runner: %w", err)
	}
	return c, nil
}
