package httpapi

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tier-agent/internal/admission"
	"tier-agent/internal/fence"
	"tier-agent/internal/probe"
	"tier-agent/internal/tier"
)

// Metrics counts what happens and shows what is. Label values come from the
// configuration and from closed sets, never from the wire.
type Metrics struct {
	registry    *prometheus.Registry
	probes      *prometheus.CounterVec
	took        *prometheus.HistogramVec
	answers     *prometheus.CounterVec
	transitions *prometheus.CounterVec
	reloadDone  prometheus.Gauge
	reloadTime  prometheus.Gauge

	mu    sync.RWMutex // held while a series of a tier is made, and while tiers, which it protects, is changed
	tiers map[string]bool
}

// The outcomes of a probe. The last two were discarded by the fence.
const (
	outcomePassed      = "passed"
	outcomeFailed      = "failed"
	outcomeTimeout     = "timeout"
	outcomeInvalidated = "discarded_invalidated"
	outcomeSuperseded  = "discarded_superseded"
)

// NewMetrics returns a registry of its own. kinds are the kinds of agent-check
// answers, so that each has a series from the start.
func NewMetrics(version string, kinds []string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tier_agent_probes_total",
			Help: "Probes that have ended, exercises included, by tier and outcome; discarded ones changed nothing.",
		}, []string{"tier", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tier_agent_probe_duration_seconds", Help: "Time from the start of a probe to its end; not of exercises.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"tier"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tier_agent_agent_check_answers_total", Help: "agent-check connections by what became of them.",
		}, []string{"kind"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tier_agent_transitions_total", Help: "Transitions that have ended.",
		}, []string{"verb", "outcome"}),
		reloadDone: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tier_agent_config_last_reload_successful", Help: "1 where the last reload of the configuration, or the start, was carried out.",
		}),
		reloadTime: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tier_agent_config_last_reload_success_timestamp_seconds", Help: "When the configuration in force was loaded.",
		}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tier_agent_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.registry.MustRegister(m.probes, m.took, m.answers, m.transitions, m.reloadDone, m.reloadTime, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, kind := range kinds {
		m.answers.WithLabelValues(kind)
	}
	for _, verb := range []admission.Verb{admission.VerbQuiesce, admission.VerbDrain, admission.VerbReadmit, admission.VerbInvalidate, admission.VerbOverride} {
		for _, outcome := range []admission.Outcome{admission.Done, admission.Refused, admission.Incomplete, admission.TimedOut} {
			m.transitions.WithLabelValues(string(verb), string(outcome))
		}
	}
	return m
}

// Watch adds what the model and the HAProxies show at the moment of a scrape.
func (m *Metrics) Watch(model Model, watcher Watcher) {
	m.registry.MustRegister(&collector{model: model, watcher: watcher})
	var names []string
	for _, t := range model.Status() {
		names = append(names, t.Name)
	}
	m.SetTiers(names)
}

// SetTiers says which tiers there are. The series of all others go, and do not
// come back with a probe that was out.
func (m *Metrics) SetTiers(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.tiers {
		if !slices.Contains(names, name) {
			m.probes.DeletePartialMatch(prometheus.Labels{"tier": name})
			m.took.DeleteLabelValues(name)
		}
	}
	m.tiers = make(map[string]bool, len(names))
	for _, name := range names {
		m.tiers[name] = true
		for _, outcome := range []string{outcomePassed, outcomeFailed, outcomeTimeout, outcomeInvalidated, outcomeSuperseded} {
			m.probes.WithLabelValues(name, outcome)
		}
	}
}

// Handler serves the registry.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// ProbeEnded counts one probe. How long a completion takes would say nothing among
// the times of the others.
func (m *Metrics) ProbeEnded(p tier.Probed) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !m.tiers[p.Tier] {
		return
	}
	m.probes.WithLabelValues(p.Tier, outcomeOf(p)).Inc()
	if !p.Exercise {
		m.took.WithLabelValues(p.Tier).Observe(p.Took.Seconds())
	}
}

// Answered counts one agent-check connection.
func (m *Metrics) Answered(kind string) { m.answers.WithLabelValues(kind).Inc() }

// TransitionEnded counts one transition.
func (m *Metrics) TransitionEnded(r admission.Result) {
	m.transitions.WithLabelValues(string(r.Verb), string(r.Outcome)).Inc()
}

func outcomeOf(p tier.Probed) string {
	switch {
	case p.Verdict.Reason == fence.ReasonInvalidated:
		return outcomeInvalidated
	case p.Verdict.Reason == fence.ReasonSuperseded:
		return outcomeSuperseded
	case p.Observed == probe.Timeout:
		return outcomeTimeout
	case p.Verdict.Ready:
		return outcomePassed
	}
	return outcomeFailed
}

// collector reads the present at each scrape, so that an age never lags.
type collector struct {
	model   Model
	watcher Watcher
}

var (
	tierLabel    = []string{"tier"}
	serverLabels = []string{"tier", "server"}

	descAdmit = prometheus.NewDesc("tier_agent_server_admitted", "1 where the server may take a new request now.", serverLabels, nil)
	descReady = prometheus.NewDesc("tier_agent_server_ready", "1 where fresh evidence says ready, whatever the admission.", serverLabels, nil)
	descAge   = prometheus.NewDesc("tier_agent_evidence_age_seconds", "Age of the evidence; absent where there is none.", serverLabels, nil)
	descGen   = prometheus.NewDesc("tier_agent_generation", "Newest epoch of the tier; it rises with every invalidation.", tierLabel, nil)
	descOpen  = prometheus.NewDesc("tier_agent_tier_open", "1 where the tier's admission is open, 0 where it is quiesced.", tierLabel, nil)
	descServe = prometheus.NewDesc("tier_agent_tier_admitted", "1 where the tier may take a new request now.", tierLabel, nil)
	descCount = prometheus.NewDesc("tier_agent_tier_serving_servers", "Servers of the tier that may take a new request now.", tierLabel, nil)
	descOver  = prometheus.NewDesc("tier_agent_tier_override_seconds", "What is left of the override by which the tier is open on health alone; 0 for none.", tierLabel, nil)
	descTakes = prometheus.NewDesc("tier_agent_haproxy_server_takes", "1 where the HAProxy sends new requests to the server; absent where it cannot be read.", []string{"haproxy", "tier", "server"}, nil)
	descProxy = prometheus.NewDesc("tier_agent_haproxy_readable", "1 where the instance answered the last read.", []string{"haproxy"}, nil)
)

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descAdmit, descReady, descAge, descGen, descOpen, descServe, descCount, descOver, descTakes, descProxy} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	views := c.watcher.Views()
	for _, t := range c.model.Status() {
		t = inHAProxy(t, views)
		gauge(descGen, float64(max(t.Answer.Generation.Global, t.Answer.Generation.Tier)), t.Name)
		gauge(descOpen, one(!t.Answer.Quiesced), t.Name)
		gauge(descServe, one(t.Answer.Admit), t.Name)
		gauge(descCount, float64(t.Serving), t.Name)
		left := 0.0
		if t.Override != nil {
			left = t.Override.Left(time.Now()).Seconds()
		}
		gauge(descOver, left, t.Name)
		for _, s := range t.Servers {
			name := s.Backend + "/" + s.Name
			gauge(descAdmit, one(s.Answer.Admit), t.Name, name)
			ready := s.Answer.Ready
			if s.Answer.Overridden { // Ready is not about evidence then
				ready = s.Answer.State == tier.StateReady
			}
			gauge(descReady, one(ready), t.Name, name)
			for _, v := range views {
				if shown, known := v.Servers[name]; known && v.Readable() {
					gauge(descTakes, one(shown.Takes()), v.Instance, t.Name, name)
				}
			}
			if s.Answer.HasEvidence {
				gauge(descAge, s.Answer.Age.Seconds(), t.Name, name)
			}
		}
	}
	for _, o := range views {
		gauge(descProxy, one(o.Readable()), o.Instance)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
