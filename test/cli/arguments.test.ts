import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { AccountCommand } from '../../src/cli/account-arguments.ts'
import { GRAMMARS, type ParsedCommand, parseCommand } from '../../src/cli/commands.ts'
import { detailsOf, overview, UsageError } from '../../src/cli/grammar.ts'
import { rewindCommand } from '../../src/cli/time-machine-arguments.ts'
import type { SetupCommand, VaultCommand } from '../../src/cli/vault-arguments.ts'
import { ROOT, settee } from './child.ts'

const read = (args: readonly string[]): ParsedCommand['command'] => parseCommand(args).command
const help = (...words: string[]): string => (read(['help', ...words]) as { text: string }).text

t.test('flags', (t) => {
  t.strictSame(read([]), { name: 'serve', data: undefined, flags: {} })
  const args = ['--port', '0', '--bind=::', '--data', 'd', '--log-level', 'debug', '--log-file', 'x.log']
  const flags = { port: 0, bind: '::', logLevel: 'debug', logFile: 'x.log' }
  t.strictSame(read(args), { name: 'serve', data: 'd', flags })
  t.strictSame(read(['serve', ...args]), read(args))
  t.strictSame(read([...args, 'serve']), read(args))
  t.strictSame(read(['serve', '--hosted']), {
    name: 'serve',
    data: undefined,
    flags: { hosted: true },
  })
  const tls = ['--tls-cert', 'c.pem', '--tls-key', 'k.pem', '--tls-port', '0', '--tls-bind', '::']
  t.strictSame(read(tls), {
    name: 'serve',
    data: undefined,
    flags: { tlsCert: 'c.pem', tlsKey: 'k.pem', tlsPort: 0, tlsBind: '::' },
  })
  t.match(read(['serve', '--store', 'postgres://anna@db/notes']), {
    flags: { store: 'postgres://anna@db/notes' },
  })
  t.throws(() => read(['--tls-port', '70000']), {
    message: '--tls-port must be a whole number from 0 to 65535, not "70000".',
  })
  t.throws(() => read(['--tls-key', 'k.pem']), { message: '--tls-key needs --tls-cert.' })
  for (const word of ['--version', '-v']) t.match(read([word]), { name: 'version', text: /^settee \d/ })
  t.end()
})

t.test('help', (t) => {
  for (const words of [['--help'], ['-h'], ['help']]) t.match(read(words), { name: 'help' })
  for (const { name, about, options } of GRAMMARS) {
    t.match(help(), `  ${name.padEnd(21)}${about}\n`)
    const words = name.split(' ')
    t.match(help(...words), `Usage: settee ${name} `)
    t.strictSame(read([...words, '--help']), read(['help', ...words]))
    for (const option of Object.keys(options)) t.match(help(...words), `--${option}`, `${name} --${option}`)
    const told = help(...words).matchAll(/--([a-z-]+)/g)
    for (const [, option = ''] of told) t.hasProp(options, option, `${name}: ${option}`)
  }
  t.match(help('account'), /account add.*account list.*account delete/s)
  t.match(help('history'), /settee history <database> \[.*settee history <database> <id> /s)
  const widths = GRAMMARS.flatMap(({ details }) => details.split('\n').map(({ length }) => length))
  t.ok(Math.max(...widths) <= 104)
  t.throws(() => read(['help', 'me']), { message: 'Unknown command "me".' })
  t.end()
})

t.test('exports of all databases', (t) => {
  t.strictSame(read(['export', '--all', '--to', 'x']), { name: 'export all', data: undefined, to: 'x' })
  t.throws(() => read(['export', '--all']), { message: 'settee export --all needs a folder: --to <folder>.' })
  t.throws(() => read(['export', '--all', 'notes', '--to', 'x']), { message: 'Unexpected argument "notes".' })
  t.end()
})

t.test('PostgreSQL', (t) => {
  const common = { store: undefined, data: undefined }
  t.strictSame(read(['postgres', 'check']), { name: 'check', ...common, json: false })
  t.match(read(['postgres', 'check', '--store', 'postgres://u@h/d', '--json']), {
    store: 'postgres://u@h/d',
    json: true,
  })
  t.strictSame(read(['postgres', 'distribute']), { name: 'distribute', ...common, shards: null })
  t.match(read(['postgres', 'distribute', '--shards', '64', '--data', 'd']), { shards: 64, data: 'd' })
  for (const shards of ['0', '-1', '1.5', '100000', 'x'])
    t.throws(() => read(['postgres', 'distribute', `--shards=${shards}`]), { message: /^--shards must be/ })
  t.throws(() => read(['postgres']), { message: 'settee postgres needs a subcommand: check or distribute.' })
  t.end()
})

t.test('sizes', (t) => {
  const check = { name: 'check', data: undefined, databases: ['a'], repair: false, yes: false, json: false }
  t.strictSame(read(['check', '--db', 'a', '--give-up', 'b']), { ...check, giveUp: 'b' })
  for (const words of [['--give-up', 'b'], ['--db', 'a', '--repair', '--give-up', 'b'], ['--yes']])
    t.throws(() => read(['check', ...words]), UsageError)
  t.strictSame(read(['size']), { name: 'size', data: undefined, database: null, json: false })
  t.strictSame(read(['size', 'notes', '--json', '--data', 'd']), {
    name: 'size',
    data: 'd',
    database: 'notes',
    json: true,
  })
  t.throws(() => read(['size', 'a', 'b']), UsageError)
  t.throws(() => read(['size', '--stdin']), UsageError)
  t.match(help('size'), 'settee size [')
  t.end()
})

t.test('commands about accounts', (t) => {
  const table: [args: string[], command: AccountCommand][] = [
    [['passwd', 'anna'], { name: 'passwd', account: 'anna', data: undefined, stdin: false, create: false }],
    [
      ['--stdin', 'passwd', '--data', 'd', 'anna', '--create'],
      { name: 'passwd', account: 'anna', data: 'd', stdin: true, create: true },
    ],
    [
      ['account', 'add', 'bob', '--role', 'staff', '--role=dev'],
      { name: 'account add', account: 'bob', data: undefined, stdin: false, roles: ['staff', 'dev'] },
    ],
    [['account', 'list', '--data=d'], { name: 'account list', data: 'd' }],
    [['account', 'delete', 'bob'], { name: 'account delete', account: 'bob', data: undefined }],
  ]
  for (const [args, command] of table) t.strictSame(read(args), command)
  for (const command of ['passwd', 'account']) {
    t.match(help(command), `settee ${command} `)
  }
  t.end()
})

t.test('the doctor', (t) => {
  const plain = {
    name: 'doctor',
    address: 'http://a:b@c:1/d',
    quick: false,
    long: false,
    mobile: false,
    json: false,
    report: false,
    origins: [],
    ca: undefined,
    headers: {},
  } as const
  t.strictSame(read(['doctor', plain.address]), plain)
  const args = [
    'doctor',
    '--stdin',
    '--quick',
    '--mobile',
    '--json',
    '--origin=https://a.example',
    '--origin',
    'app://b',
    '--ca',
    'x.pem',
    '--header=CF-Access-Client-Id: abc.access',
    '--header',
    'cf-access-client-secret:  a b ',
  ]
  const all = {
    quick: true,
    mobile: true,
    json: true,
    origins: ['https://a.example', 'app://b'],
    ca: 'x.pem',
    headers: { 'cf-access-client-id': 'abc.access', 'cf-access-client-secret': 'a b' },
  }
  t.strictSame(read(args), { ...plain, address: null, ...all })
  const secret = 'http://a:geheim@c:1/d'
  const wrong = [
    [],
    [secret, '--stdin'],
    [secret, secret],
    [secret, '--quick', '--long'],
    [secret, '--json', '--report'],
    ...[
      'https://a.example/',
      'a.example',
      'https://A.example',
      'https://a.example/x',
      "https://a'b",
      '*',
      '',
    ].map((each) => [secret, `--origin=${each}`]),
  ]
  const headers = [
    'geheim',
    'X geheim',
    'X:',
    ': geheim',
    'X: geheim\r\nY: z',
    'X: gehe\u00fcm',
    'Host: geheim',
    'authorization: geheim',
  ]
  wrong.push(...headers.map((each) => [secret, `--header=${each}`]))
  for (const rest of [...wrong, [secret, '--data', 'd']]) {
    t.throws(() => read(['doctor', ...rest]), UsageError)
    t.throws(() => read(['doctor', ...rest]), { message: /^(?!.*geheim)/ })
  }
  t.match(help('doctor'), 'settee doctor <address>')
  t.end()
})

t.test('vaults and setting up', (t) => {
  const shared = {
    data: undefined,
    host: undefined,
    account: undefined,
    device: undefined,
    passphraseFile: undefined,
    mobileFilter: false,
    json: false,
    qr: false,
  }
  const add = { name: 'vault add', vault: 'work', app: 'inkdrop', stdin: false, renew: false } as const
  const setup = { name: 'setup', admin: undefined, stdin: false, vault: undefined, app: undefined } as const
  const table: [line: string, command: SetupCommand | VaultCommand][] = [
    ['vault add work --for inkdrop', { ...shared, ...add }],
    [
      'vault add work --for=Inkdrop --host https://h:443 --account bob --device phone --renew --mobile-filter --json',
      {
        ...{ ...shared, ...add, host: 'https://h:443', account: 'bob', device: 'phone' },
        ...{ renew: true, mobileFilter: true, json: true },
      },
    ],
    [
      'vault add work --for livesync --passphrase-file p --data d --qr --stdin',
      { ...shared, ...add, app: 'livesync', passphraseFile: 'p', data: 'd', qr: true, stdin: true },
    ],
    ['setup', { ...shared, ...setup }],
    [
      'setup --admin anna --stdin --no-vault',
      { ...shared, ...setup, admin: 'anna', stdin: true, vault: null },
    ],
    ['setup --vault work --for pouchdb', { ...shared, ...setup, vault: 'work', app: 'pouchdb' }],
  ]
  for (const [line, command] of table) t.strictSame(read(line.split(' ')), command, line)
  const mistakes: [line: string, message: RegExp][] = [
    ['vault', /needs a subcommand: add/],
    ['vault remove work', /needs a subcommand: add/],
    ['vault add', /needs the name/],
    ['vault add --help=x', /does not take/],
    ['vault add work', /needs --for/],
    ['vault add work --for obsidian', /--for must be/],
    ['vault add work hunter2 --for inkdrop', /nothing else/],
    ['vault add Work --for inkdrop', /lowercase letter/],
    ['vault add _users --for inkdrop', /lowercase letter/],
    ['vault add work --for inkdrop --host notes.example.com', /begin with http/],
    ['vault add work --for inkdrop --host https://notes.example.com', /no port/],
    [
      'vault add work --for inkdrop --host https://a:hunter2@h:443',
      /must not contain a user name or password/,
    ],
    ['vault add work --for inkdrop --account a:b', /colon/],
    ['vault add work --for inkdrop --stdin --renew', /--device or --renew/],
    ['vault add work --for inkdrop --json --qr', /cannot be combined/],
    ['vault add work --for inkdrop --admin x', /no option --admin/],
    ['setup --vault a --no-vault', /cannot be combined/],
    ['setup --admin a:b', /colon/],
    ['setup hunter2', /takes only options/],
    ['setup --no-vault --for livesync', /--for cannot be combined with --no-vault/],
    ['setup --no-vault --host https://h:443', /--host cannot be combined with --no-vault/],
    ['setup --no-vault --mobile-filter', /--mobile-filter cannot be combined with --no-vault/],
    ['setup --for inkdrop --passphrase-file p', /needs --for livesync/],
    ['vault add work --for pouchdb --passphrase-file p', /needs --for livesync/],
    ['vault add a/b --for livesync', /With LiveSync, .*slash/],
    [
      'vault add work --for inkdrop --host https://h:443/a//b',
      /After the port there is nothing, or the path/,
    ],
    [
      'vault add work --for inkdrop --host https://h:443?hunter2',
      /After the port there is nothing, or the path/,
    ],
    ['vault add work --for inkdrop --host https://h/a%2Fb', /no port.*After the port there is nothing/],
    ['setup --admin a=b', /key in local\.ini/],
    ['setup --admin ;a', /key in local\.ini/],
    ['setup --renew', /no option --renew/],
  ]
  for (const [line, message] of mistakes) {
    t.throws(() => read(line.split(' ')), { name: 'UsageError', message }, line)
    t.throws(() => read(line.split(' ')), { message: /^(?!.*hunter2)/ })
  }
  t.end()
})

t.test('follow and promote', (t) => {
  const follow = { name: 'follow', data: undefined, json: false, primary: null, again: false, stdin: false }
  const primary = 'http://admin:hunter2@primary:5984'
  t.strictSame(read(['follow']), follow)
  t.strictSame(read(['follow', primary, '--again', '--stdin']), {
    ...follow,
    primary,
    again: true,
    stdin: true,
  })
  t.strictSame(read(['promote', '--yes', '--data', 'd']), {
    name: 'promote',
    data: 'd',
    json: false,
    yes: true,
  })
  const mistakes: [args: string[], message: RegExp][] = [
    [['follow', primary, primary], /takes one address/],
    [['follow', 'admin:hunter2@primary'], /needs an address like/],
    [['follow', '--stdin'], /--stdin needs an address/],
    [['promote', 'x'], /Unexpected argument/],
    [['promote', '--again'], /no option --again/],
  ]
  for (const [args, message] of mistakes) {
    t.throws(() => read(args), { name: 'UsageError', message }, args.join(' '))
    t.throws(() => read(args), { message: /^(?!.*hunter2)/ })
  }
  t.end()
})

t.test('each mistake is reported in one sentence', (t) => {
  const table: [args: string[], message: string | RegExp][] = [
    [['--bogus'], "Unknown option '--bogus'."],
    [['-x'], "Unknown option '-x'."],
    [['start'], 'Unknown command "start".'],
    [['serve', 'me'], 'Unexpected argument "me".'],
    [['--port'], /^Option '--port <value>' argument missing\.$/],
    [['--port', '-1'], /^Option '--port' argument is ambiguous\.$/],
    [['--help=yes'], /^Option '-h, --help' does not take an argument\.$/],
    [['--data', ' '], '--data needs a value.'],
    [['--stdin'], 'settee serve has no option --stdin.'],
    [['passwd'], 'settee passwd needs a name.'],
    [['passwd', ' '], 'settee passwd needs a name.'],
    [
      ['passwd', 'anna', 'secret'],
      'settee passwd takes one name and nothing else; it asks for the password.',
    ],
    [['passwd', 'anna', '--port', '1'], 'settee passwd has no option --port.'],
    [['passwd', 'anna', '--role', 'x'], 'settee passwd has no option --role.'],
    [['account'], 'settee account needs a subcommand: add, list or delete.'],
    [['account', 'remove', 'x'], 'settee account needs a subcommand: add, list or delete.'],
    [['account', 'add'], 'settee account add needs a name.'],
    [['account', 'add', 'x', '--role', ' '], '--role needs a value.'],
    [['account', 'add', 'x', '--create'], 'settee account add has no option --create.'],
    [['account', 'list', 'x'], 'Unexpected argument "x".'],
    [['account', 'list', '--stdin'], 'settee account list has no option --stdin.'],
    [['account', 'delete', 'x', '--stdin'], 'settee account delete has no option --stdin.'],
    ...['abc', '1.5', '65536', '', '0x10', '5984 '].map((port): [string[], string] => [
      [`--port=${port}`],
      `--port must be a whole number from 0 to 65535, not "${port}".`,
    ]),
  ]
  for (const [args, message] of table) {
    t.throws(() => read(args), { message })
    t.throws(() => read(args), UsageError)
  }
  t.end()
})

t.test('history and rewind', async (t) => {
  const rewind = {
    name: 'rewind',
    data: undefined,
    json: false,
    database: 'notes',
    ids: [],
    dryRun: false,
    yes: false,
  }
  const at = Date.UTC(2025, 2, 1, 14, 5)
  t.strictSame(read(['rewind', 'notes', '--to', '2025-03-01T14:05Z']), { ...rewind, at })
  t.strictSame(
    read(['rewind', 'notes', '--to', String(at), '--id', 'a', '--id', 'b', '--dry-run', '--yes', '--json']),
    { ...rewind, at, ids: ['a', 'b'], dryRun: true, yes: true, json: true },
  )
  const history = {
    name: 'history',
    data: undefined,
    json: false,
    database: 'notes',
    id: null,
    limit: 50,
    since: null,
    choice: null,
  }
  const rev = '2-abc'
  t.strictSame(read(['history', 'notes', 'a', '--rev', rev]), {
    ...history,
    id: 'a',
    choice: { rev },
  })
  const then = '2025-03-01T14:05Z'
  t.strictSame(read(['history', 'notes', 'a', '--at', then]), { ...history, id: 'a', choice: { at } })
  t.strictSame(read(['history', 'notes', '--since', then]), { ...history, since: at })
  for (const [ago, ms] of [
    ['90m', 5_400_000],
    ['2h', 7_200_000],
    ['7d', 604_800_000],
    ['2w', 1_209_600_000],
  ] as const) {
    t.match(rewindCommand(['notes'], { to: ago }, at), { at: at - ms }, ago)
  }
  t.strictSame(read(['history', 'notes']), history)
  t.strictSame(read(['history', 'notes', 'a', '--limit', '5']), { ...history, id: 'a', limit: 5 })
  for (const args of [
    ['history'],
    ['history', 'notes', 'a', 'b'],
    ['history', 'notes', '--limit', '0'],
    ['history', 'notes', '--yes'],
    ['history', 'notes', '--at', then],
    ['history', 'notes', '--rev', rev],
    ['history', 'notes', 'a', '--rev', 'x'],
    ['history', 'notes', 'a', '--rev', rev, '--at', then],
    ['history', 'notes', 'a', '--since', then],
    ['rewind', 'notes', '--to', '2y'],
    ['rewind', 'notes', '--to', '2025-02-30'],
    ['rewind', 'notes', '--to', '2025-03-01 14:05+25:00'],
    ['rewind'],
    ['rewind', 'notes'],
    ['rewind', 'notes', '--to', 'yesterday'],
    ['rewind', 'notes', 'a', '--to', '2025-03-01'],
  ]) {
    t.throws(() => read(args), UsageError, args.join(' '))
  }
})

t.test('--help and --version', async (t) => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  t.strictSame(await settee(t, ['--help']).ended, { code: 0, stdout: overview(GRAMMARS), stderr: '' })
  const backup = GRAMMARS.filter(({ name }) => name === 'backup')
  t.strictSame(await settee(t, ['help', 'backup']).ended, { code: 0, stdout: detailsOf(backup), stderr: '' })
  t.strictSame(await settee(t, ['serve', '--version']).ended, {
    code: 0,
    stdout: `settee ${version}\n`,
    stderr: '',
  })
})

t.test('a mistake is one line on standard error and exit code 1', async (t) => {
  const unknown = await settee(t, ['--bogus']).ended
  t.strictSame(unknown, {
    code: 1,
    stdout: '',
    stderr: "settee: Unknown option '--bogus'. See settee --help.\n",
  })
  const port = await settee(t, ['serve', '--port', 'abc']).ended
  t.match(port, { code: 1, stdout: '', stderr: /^settee: --port must be a whole number .*\n$/ })
  const command = await settee(t, ['start']).ended
  t.match(command, { code: 1, stdout: '', stderr: /^settee: Unknown command "start"\. .*\n$/ })
})
