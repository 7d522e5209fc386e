package main

import (
	"tier-agent/internal/runtimeapi"
	"tier-agent/internal/tier"
)

// keptRows decides which rows of a dump a server-state file has: what somebody or we
// have closed, and what is known to be not ready and is down in HAProxy. A row brings
// the server's old port back, so one that is open, or that the configuration itself
// disables, has none; but for members that we have opened, see openMembers.
func keptRows(model *tier.Model) func(runtimeapi.ServersState) func(runtimeapi.ServerState) bool {
	closed := func(row runtimeapi.ServerState) bool {
		if row.Admin.Forced() {
			return !row.Admin.StartsClosed()
		}
		a, known := model.Server([]byte(row.Name()))
		return known && !a.Up && row.Operational == runtimeapi.OpStopped
	}
	return func(dump runtimeapi.ServersState) func(runtimeapi.ServerState) bool {
		open := openMembers(model, dump, closed)
		return func(row runtimeapi.ServerState) bool { return open[row.Name()] || closed(row) }
	}
}

// openMembers are the members that are to start open, each with the address that it
// has: its slot would otherwise start disabled, and without one. Of slots that DNS
// fills those before the first that has no row: a new worker lets the first answer
// fill an empty slot with a host that a later row has, and that row's slot, which is
// open, with the next host (7 to 345 requests at a newcomer, measured on 2.6, 3.0 and
// 3.2). What has no row is opened at the next look.
func openMembers(model *tier.Model, dump runtimeapi.ServersState, closed func(runtimeapi.ServerState) bool) map[string]bool {
	open, gap := map[string]bool{}, map[string]bool{}
	for _, row := range dump.Servers {
		at := model.MemberAt(row.Name())
		is := at.IsValid() && at == row.At() && row.Admin&^runtimeapi.HostChanged == runtimeapi.ConfigMaint
		if is {
			a, _ := model.Server([]byte(row.Name()))
			is = a.Admit
		}
		switch {
		case row.FQDN == "":
			open[row.Name()] = is
		case gap[row.Backend]:
		case is:
			open[row.Name()] = true
		default:
			gap[row.Backend] = !closed(row)
		}
	}
	return open
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
