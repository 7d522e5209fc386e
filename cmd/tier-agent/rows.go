package main

import (
	"tier-agent/internal/statefile"
	"tier-agent/internal/tier"
)

// rows gives the rows of a HAProxy's server-state file.
func rows(model *tier.Model) func(statefile.Shown) []statefile.Row {
	return func(shown statefile.Shown) []statefile.Row { return statefile.Compose(model, shown) }
}

// quiesced decides of which servers the streams that are left are counted.
func quiesced(model *tier.Model) func(server string) bool {
	return func(server string) bool {
		a, known := model.Server([]byte(server))
		return known && a.Quiesced
	}
}

// up decides of which servers it is asked why they are down.
func up(model *tier.Model) func(server string) bool {
	return func(server string) bool {
		a, known := model.Server([]byte(server))
		return known && a.Up
	}
}
