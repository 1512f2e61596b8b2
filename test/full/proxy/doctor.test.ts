/** The doctor's findings for settee behind a real nginx: none with deploy/nginx.conf, and otherwise the wrong line. */
import t, { type Test } from 'tap'
import { builtSettee } from '../../cli/child.ts'
import { startNginx } from '../../helpers/nginx.ts'
import { startTestServer } from '../../helpers/server.ts'

const BASIC = { auth: 'anna:secret' }

async function settee(t: Test): Promise<string> {
  const server = await startTestServer(t)
  await server.request('PUT', '/_node/_local/_config/settee/trusted_proxies', { body: '"127.0.0.1"' })
  await server.request('PUT', '/_node/_local/_config/admins/anna', { body: '"secret"' })
  await server.request('PUT', '/notes', BASIC)
  return server.url
}

interface Report {
  readonly ok: boolean
  readonly findings: readonly {
    readonly name: string
    readonly state: string
    readonly text: string
    readonly cures: readonly { readonly place: string; readonly line: string }[]
  }[]
}

/** @param edit changes deploy/nginx.conf */
async function examined(t: Test, edit: (text: string) => string, ...options: string[]): Promise<Report> {
  const nginx = await startNginx(t, { upstream: await settee(t), edit })
  const address = `${nginx.url.replace('//', '//anna:secret@')}/notes`
  const args = ['doctor', '--json', '--ca', nginx.certificate.certFile, ...options, address]
  const { code, stdout, stderr } = await builtSettee(t, args).ended
  t.equal(stderr, '')
  const report = JSON.parse(stdout) as Report
  t.equal(code, report.ok ? 0 : 1)
  t.notMatch(stdout, 'secret')
  return report
}

const wrongIn = ({ findings }: Report) => findings.filter(({ state }) => state === 'wrong')

t.test('no fault', async (t) => {
  const report = await examined(t, (text) => text)
  t.same(
    report.findings.filter(({ state }) => state !== 'fine').map(({ name, state }) => [name, state]),
    [['long feed', 'skipped']],
  )
})

t.test('a feed that nginx buffers', async (t) => {
  const report = await examined(
    t,
    (text) =>
      text.replace('proxy_buffering off;', 'proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;'),
    '--quick',
  )
  t.match(wrongIn(report), [{ name: 'feed', cures: [{ place: 'nginx', line: /proxy_buffering off;/ }] }])
})

t.test('bodies of at most one megabyte', async (t) => {
  const report = await examined(t, (text) =>
    text.replace(/client_max_body_size \S+;/, 'client_max_body_size 1m;'),
  )
  t.match(wrongIn(report), [{ name: 'bodies', cures: [{ place: 'nginx', line: /client_max_body_size/ }] }])
})
