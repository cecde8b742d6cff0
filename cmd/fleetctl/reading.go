package main

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// reading is what flags say of the coefficients that are wanted and of how new
// the answer must be.
type reading struct {
	filter     map[string]*string
	consistent bool
	maxAge     time.Duration
}

// add gives a command the flags.
func (r *reading) add(c *cobra.Command) {
	r.filter = map[string]*string{}
	for name, help := range map[string]string{
		"gpu": "only this GPU model", "driver": "only this driver", "workload": "only this workload",
		"origin": "only measured, simulated or imported", "quota_kind": "only this quota kind",
	} {
		r.filter[name] = c.Flags().String(strings.ReplaceAll(name, "_", "-"), "", help)
	}
	c.Flags().BoolVar(&r.consistent, "consistent", false, "with everything that was acknowledged before, from the leader")
	c.Flags().DurationVar(&r.maxAge, "max-age", 0, "refuse rather than answer from a replica that may be further behind, like 5s")
}

// query is the same for the API.
func (r *reading) query() url.Values {
	query := url.Values{}
	for name, value := range r.filter {
		if *value != "" {
			query.Set(name, *value)
		}
	}
	if r.consistent {
		query.Set("consistent", strconv.FormatBool(true))
	}
	if r.maxAge > 0 {
		query.Set("max_age", r.maxAge.String())
	}
	return query
}
