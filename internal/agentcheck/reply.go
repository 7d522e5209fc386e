package agentcheck

import (
	"strconv"
	"strings"
)

// Words of our own that stand behind "#" when a poll gets no State. The
// source's reasons are its own business.
const (
	ReasonQuiesced    = "quiesced"
	ReasonUnknown     = "unknown_tier"
	ReasonNotReady    = "not_ready" // not ready, and the source gave no usable reason
	ReasonNoAgentSend = "no_agent_send"
	ReasonReadTimeout = "read_timeout"
	ReasonBadRequest  = "bad_request"
	ReasonInternal    = "internal_error"
)

const (
	maxWeight = 25600 // HAProxy clips a larger percentage to this

	// HAProxy stores 127 bytes of description, its own "via agent : down ("
	// included, and cuts the rest without a word.
	maxReason = 100
)

// State is what a poll is answered with: a copy of published memory.
type State struct {
	Quiesced bool   // admission is closed, whatever the evidence says
	Ready    bool   // evidence says ready
	Reason   string // closed vocabulary; the description when not ready
	Weight   int    // percent of HAProxy's configured weight, 1..25600; 0 leaves the weight alone

	// AdminWords opts into ready and drain, for a tier with
	// "admission: agent-check". Such a reply undoes an operator's drain or maint.
	AdminWords bool
}

// Reply is the answer for a state, or for an unknown name. It is one line with
// its LF, below 1 KiB, whatever the state holds.
func Reply(st State, known bool) []byte {
	return AppendReply(nil, st, known)
}

// AppendReply appends what Reply returns to dst.
func AppendReply(dst []byte, st State, known bool) []byte {
	switch {
	case !known:
		return appendDown(dst, ReasonUnknown)
	case st.Quiesced && st.AdminWords:
		return append(dst, "drain # "+ReasonQuiesced+"\n"...)
	case st.Quiesced:
		return appendDown(dst, ReasonQuiesced)
	case !st.Ready:
		return appendDown(dst, st.Reason)
	case st.AdminWords:
		dst = append(dst, "ready "...)
	}
	dst = append(dst, "up"...)
	if st.Weight > 0 {
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, int64(min(st.Weight, maxWeight)), 10)
		dst = append(dst, '%')
	}
	return append(dst, '\n')
}

// Private

// kindOf names the answer that AppendReply gives.
func kindOf(st State, known bool) string {
	switch {
	case !known:
		return KindUnknown
	case st.Quiesced && st.AdminWords:
		return KindDrain
	case st.Quiesced:
		return KindQuiesced
	case st.Ready:
		return KindUp
	}
	return KindDown
}

// appendDown needs the blank before "#": HAProxy ignores "down#text".
func appendDown(dst []byte, reason string) []byte {
	dst = append(dst, "down # "...)
	if reason == "" || isAdminWord(reason) {
		reason = ReasonNotReady
	}
	for i := range min(len(reason), maxReason) {
		dst = append(dst, plain(reason[i]))
	}
	return append(dst, '\n')
}

// plain keeps a description one word of harmless ASCII: it ends up in logs and
// in unquoted CSV columns, and no admin word can stand free in it.
func plain(b byte) byte {
	if b <= ' ' || b > '~' {
		return '_'
	}
	switch b {
	case '"', '\'', '`', ',', ';', '#':
		return '_'
	}
	return b
}

// isAdminWord also keeps admin words out of descriptions, where HAProxy ignores
// them, so that a search through a capture for them finds only real ones.
func isAdminWord(s string) bool {
	return strings.EqualFold(s, "ready") || strings.EqualFold(s, "drain") || strings.EqualFold(s, "maint")
}
