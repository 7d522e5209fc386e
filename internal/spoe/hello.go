package spoe

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/negasus/haproxy-spoe-go/payload/kv"
	"github.com/negasus/haproxy-spoe-go/typeddata"
)

// version is the protocol's. HAProxy takes no other.
const version = "2.0"

// status is a code of the specification (SPOE.txt, 3.2.4 and 3.2.9).
type status uint32

const (
	statusNormal          status = 0
	statusTimeout         status = 2
	statusTooBig          status = 3
	statusInvalid         status = 4
	statusNoVersion       status = 5
	statusNoMaxFrameSize  status = 6
	statusNoCapabilities  status = 7
	statusBadVersion      status = 8
	statusBadMaxFrameSize status = 9
	statusFragmented      status = 10
	statusResource        status = 13
	statusUnknown         status = 99
)

// violations says how each is counted and what the peer is told.
var violations = map[status]struct {
	kind Kind
	text string
}{
	statusTooBig:          {TooBig, "frame is too big"},
	statusInvalid:         {Invalid, "invalid frame received"},
	statusNoVersion:       {NoVersion, "version value not found"},
	statusNoMaxFrameSize:  {NoMaxFrameSize, "max-frame-size value not found"},
	statusNoCapabilities:  {NoCapabilities, "capabilities value not found"},
	statusBadVersion:      {BadVersion, "unsupported version"},
	statusBadMaxFrameSize: {BadMaxFrameSize, "max-frame-size too big or too small"},
	statusFragmented:      {Fragmented, "payload fragmentation is not supported"},
}

// hello is what a peer has introduced itself with.
type hello struct {
	maxFrameSize uint64
	healthCheck  bool
}

// parseHello reads a HAPROXY-HELLO. Of a health check's, the capabilities may be
// empty; no engine-id is asked for.
func parseHello(f frame) (h hello, wrong status) {
	if f.kind != haproxyHello || !bytes.Equal(f.ids, noIDs) {
		return h, statusInvalid
	}
	var versions []byte
	var seen []string
	for c := (cursor{b: f.payload}); len(c.b) > 0; {
		name, v := c.bytes(), c.typed()
		if c.bad || slices.Contains(seen, string(name)) {
			return h, statusInvalid
		}
		sound := true
		switch string(name) {
		case "supported-versions":
			versions, sound = v.data, v.kind == typeddata.TypeString
		case "max-frame-size":
			h.maxFrameSize, sound = v.number, v.isInteger()
		case "capabilities", "engine-id":
			sound = v.kind == typeddata.TypeString
		case "healthcheck":
			h.healthCheck, sound = v.number == 1, v.kind == typeddata.TypeBoolean
		}
		if !sound {
			return h, statusInvalid
		}
		seen = append(seen, string(name))
	}
	switch {
	case !slices.Contains(seen, "supported-versions"):
		return h, statusNoVersion
	case !slices.Contains(seen, "max-frame-size"):
		return h, statusNoMaxFrameSize
	case !slices.Contains(seen, "capabilities"):
		return h, statusNoCapabilities
	case !supported(string(versions)):
		return h, statusBadVersion
	case h.maxFrameSize < minFrameSize:
		return h, statusBadMaxFrameSize
	}
	return h, 0
}

func supported(versions string) bool {
	for v := range strings.SplitSeq(versions, ",") {
		if strings.TrimSpace(v) == version {
			return true
		}
	}
	return false
}

// appendHello appends the AGENT-HELLO.
func appendHello(dst []byte, maxFrameSize int) []byte {
	return appendPairs(dst, agentHello, kv.Item{Name: "version", Value: version},
		kv.Item{Name: "max-frame-size", Value: uint32(maxFrameSize)},
		kv.Item{Name: "capabilities", Value: "pipelining"})
}

// appendDisconnect appends an AGENT-DISCONNECT.
func appendDisconnect(dst []byte, code status, text string) []byte {
	return appendPairs(dst, agentDisconnect, kv.Item{Name: "status-code", Value: uint32(code)}, kv.Item{Name: "message", Value: text})
}

func appendPairs(dst []byte, kind byte, items ...kv.Item) []byte {
	from := len(dst)
	dst = beginFrame(dst, kind, noIDs)
	pairs := kv.AcquireKV()
	defer kv.ReleaseKV(pairs)
	for _, item := range items {
		pairs.Add(item.Name, item.Value)
	}
	b, err := pairs.Bytes()
	if err != nil { // the types above are all ones that it knows
		panic(fmt.Sprintf("spoe: encoding frame %d: %v", kind, err))
	}
	dst = append(dst, b...)
	endFrame(dst, from)
	return dst
}
