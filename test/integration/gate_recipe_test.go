package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tier-agent/test/guarantee"
	"tier-agent/test/lab"
)

// ownFrontend is one as operators have them: a log format, rules and ACLs of its own,
// static files, backends of no tier. %s is what the recipe adds.
const ownFrontend = `frontend public
    bind "${TIER_FRONT_ADDR}"
    log-format "public %%ci %%ST %%b %%{+Q}r tier=%%[var(txn.tier_backend,-)] reason=%%[var(txn.tier.reason,-)] gate_error=%%[var(txn.tier.error,-)]"
    acl is_static path_beg /static/
    acl is_docs   hdr(host) -i docs.example
    acl is_bad    path_sub ../
    http-request deny deny_status 403 if is_bad
    http-request set-header X-Forwarded-Proto http
%s
    use_backend files if is_static
    use_backend docs if is_docs
    use_backend heavy if for_heavy
    use_backend fast if for_fast
    default_backend site

# A way to a tier that somebody has forgotten.
frontend forgotten
    bind 127.0.0.1:%d
    default_backend heavy

backend files
    http-request return status 200 content-type text/plain string "a file"
backend docs
    http-request return status 200 content-type text/plain string "a page"
backend site
    http-request return status 200 content-type text/plain string "the site"
`

// recipe are the lines that docs/spoe.md gives, and those of haproxy.cfg that it names:
// for the frontend and for each backend of a tier.
func recipe(t *testing.T, root, haproxyCfg string) (frontend, backend string) {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(root, "docs", "spoe.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```haproxy\\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	require.Len(t, blocks, 2)
	rules := regexp.MustCompile(`(?s)    filter spoe .*? if gate_asks !gate_admits\n`).FindString(haproxyCfg)
	require.NotEmpty(t, rules)
	return blocks[0][1] + rules, blocks[1][1]
}

// The gate's recipe, in a frontend as operators have them: what is for a tier is asked
// about, and everything else goes its way, also without tier-agent.
//
// Control: without gate_asks in haproxy.cfg, every request for another backend was a 503,
// with bad_argument; without the rule in the backend, the forgotten frontend was served.
func TestGate_TheRecipeInAnotherFrontend(t *testing.T) {
	onEach(t, func(t *testing.T, haproxy string) {
		more, err := lab.FreePorts()
		require.NoError(t, err)
		w := newWorldWith(t, haproxy, worldOptions{gate: true, config: func(o lab.Options, text string) string {
			inFront, inBackend := recipe(t, o.Root, text)
			inBackend += "    http-request replace-path ^/(heavy|fast)/(.*) /\\2\n"
			shipped := regexp.MustCompile(`(?s)frontend api\n.*?    use_backend %\[var\(txn.tier_backend\)\]\n`)
			require.Regexp(t, shipped, text)
			text = shipped.ReplaceAllLiteralString(text, fmt.Sprintf(ownFrontend, inFront, more.Front))
			return strings.NewReplacer("backend heavy\n", "backend heavy\n"+inBackend, "backend fast\n", "backend fast\n"+inBackend).Replace(text)
		}})
		others := func() {
			t.Helper()
			for path, want := range map[string]string{"/static/x.css": "a file", "/": "the site", "/heavy": "the site"} {
				status, text := w.fetch(w.URL(path))
				assert.Equal(t, fmt.Sprint(http.StatusOK, " ", want), fmt.Sprint(status, " ", text), path)
			}
			status, _ := w.fetch(w.URL("/static/..%2F../x"))
			assert.Equal(t, http.StatusForbidden, status, "the frontend's own rule")
		}
		forgotten := func() {
			t.Helper()
			status, text := w.fetch(fmt.Sprintf("http://127.0.0.1:%d/v1/models", more.Front))
			assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, status)
			assert.Contains(t, text, "gate_not_asked")
		}
		bad := `tier_agent_gate_answers_total{kind="bad_message"}`
		others()
		forgotten()
		assert.Equal(t, lab.HeavyModel, w.ask("heavy").Model)
		assert.Equal(t, lab.FastModel, w.ask("fast").Model)

		w.verb(0, "quiesce", "heavy", "--reason", "swap")
		assert.Equal(guarantee.T(t), "quiesced", refusalOf(t, w.ask("heavy")).Reason)
		assert.Equal(t, http.StatusOK, w.ask("fast").Status)
		others()
		forgotten()
		require.NoError(t, w.Reload())
		for range 20 {
			assert.Equal(guarantee.T(t), http.StatusServiceUnavailable, w.ask("heavy").Status)
		}
		others()
		w.verb(0, "readmit", "heavy")
		w.waitStatus("heavy", http.StatusOK)
		assert.Zero(t, w.metric(bad), "requests of no tier that were asked about")

		require.NoError(t, w.AgentProc.Kill())
		require.NoError(t, lab.Within(15*time.Second, func() error {
			if a := w.ask("heavy"); a.Status != http.StatusServiceUnavailable {
				return fmt.Errorf("heavy answers %d", a.Status)
			}
			return nil
		}))
		others()
		forgotten()
		require.NoError(t, lab.Within(15*time.Second, func() error {
			log := w.HAProxies[0].Proc.Output()
			for _, want := range []string{`public 127.0.0.1 200 files "GET /static/x.css HTTP/1.1" tier=- reason=- gate_error=-`, `tier=heavy reason=quiesced gate_error=-`} {
				if !strings.Contains(log, want) {
					return fmt.Errorf("the log has no %s", want)
				}
			}
			return nil
		}))
	})
}

// fetch gets a page, over a connection of its own.
func (w *world) fetch(url string) (status int, text string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	require.NoError(w.t, err)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return res.StatusCode, string(body)
}
