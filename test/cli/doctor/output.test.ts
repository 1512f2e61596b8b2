/** How findings are shown. */
import fc from 'fast-check'
import t from 'tap'
import { isWell, jsonOf, linesOf, reportOf, summaryOf } from '../../../src/cli/doctor-command.ts'
import { formatAddress } from '../../../src/core/address.ts'
import { type Finding, fine, note, wrong } from '../../../src/doctor/finding.ts'

const CURES = [
  { place: 'nginx', line: 'a on;' },
  { place: 'Caddy', line: 'b' },
]

t.test('a line each', async (t) => {
  t.equal(linesOf(fine('clock', 'Right.')), 'fine   clock        Right.\n')
  t.equal(linesOf(note('http', 'Slow.', CURES.slice(0, 1))), 'note   http         Slow. nginx: a on;\n')
  t.equal(
    linesOf(wrong('feed', 'Cut.', CURES)),
    'WRONG  feed         Cut.\n                    nginx: a on;\n                    Caddy: b\n',
  )
  t.equal(linesOf(wrong('feed', 'a\nb')), 'WRONG  feed         a b\n')
  t.equal(summaryOf([fine('clock', '')], 1234), 'Nothing is wrong (1.2 s).\n')
  t.equal(
    summaryOf([wrong('cors', ''), note('http', '')], 50),
    '1 thing is wrong, 1 thing could be better (0.1 s).\n',
  )
  t.ok(isWell([note('http', '')]))
  t.notOk(isWell([wrong('http', '')]))
})

t.test('JSON has the address without credentials', async (t) => {
  const json = jsonOf('https://anna:secret@h.example:443/n', [wrong('cors', 'x', CURES)], 3.7)
  t.strictSame(JSON.parse(json), {
    address: 'https://h.example:443/n',
    ok: false,
    ms: 4,
    findings: [{ name: 'cors', state: 'wrong', text: 'x', cures: CURES }],
  })
  t.match(JSON.parse(jsonOf('nonsense', [], 0)), { address: null })
})

t.test('a report tells nobody who it is about', async (t) => {
  const address = 'https://anna:secret@notes.example.org:6984/vault'
  const findings: Finding[] = [
    fine('address', 'https://notes.example.org:6984/vault'),
    fine('look-up', 'notes.example.org is 203.0.113.9, 2001:db8::12:1.'),
    wrong('rights', 'anna may not read vault.', [
      { place: 'nginx', line: 'proxy_pass http://127.0.0.1:5984;' },
    ]),
    fine('version', 'Server: CouchDB/3.5.0, at 12:30:45'),
  ]
  const report = reportOf(address, findings, '0.1.0')
  t.match(report, /^```\nsettee doctor 0\.1\.0, Node \d[^\n]*; https, port 6984\n/)
  t.match(report, /https:\/\/<host>:6984\/<database>\n/)
  t.match(report, /<host> is <address>, <address>\.\n/)
  t.match(report, /<user> may not read <database>\..*http:\/\/127\.0\.0\.1:5984/)
  t.match(report, /CouchDB\/3\.5\.0/)
  t.notMatch(report, /anna|vault|notes\.example|203\.0|db8/)
})

t.test('nor about whose else: other hosts of a certificate, its authority, another account', async (t) => {
  const address = 'https://anna:secret@notes.smith.example:6984/vault'
  const findings: Finding[] = [
    { ...wrong('certificate', 'The certificate of Smith Home CA expired.'), names: ['Smith Home CA'] },
    wrong(
      'certificate',
      'It is not of notes.smith.example: altnames: DNS:*.smith.example, DNS:www.private.test',
    ),
    { ...note('credentials', 'The server knows this account by another name: bea.'), names: ['bea'] },
    wrong('server', 'Everything is sent on to https://cloud.smith.example/ and http://private.test:80/x'),
    wrong('preflights', 'Not allowed to https://app.private.test, app://obsidian.md, http://localhost.'),
  ]
  const report = reportOf(address, findings, '1')
  t.notMatch(report, /smith|private|\bbea\b/i)
  t.match(report, /app:\/\/obsidian\.md, http:\/\/localhost\./)
  t.strictSame(Object.keys(JSON.parse(jsonOf(address, findings, 1)).findings[0]), [
    ...['name', 'state', 'text', 'cures'],
  ])
})

t.test('property: no report has the host, the account or the database in it', async () => {
  const word = fc.stringMatching(/^[a-z]{12,20}$/)
  fc.assert(
    fc.property(word, word, word, word, (host, username, database, password) => {
      const parts = { scheme: 'https', username, password, host: `${host}.org`, port: 443, database } as const
      const text = `${parts.host} and ${username}, ${host}.org:443/${database}. "${username}"`
      const report = reportOf(formatAddress(parts), [wrong('cors', text)], '1')
      for (const secret of [parts.host, username, database, password]) {
        if (report.includes(secret)) return false
      }
      return true
    }),
  )
})
