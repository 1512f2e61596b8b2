import t from 'tap'
import { type Command, HELP, parseCommand } from '../../src/cli/arguments.ts'
import { UsageError } from '../../src/cli/usage-error.ts'

t.test('flags', (t) => {
  t.strictSame(parseCommand([]), { name: 'serve', arguments: { data: undefined, flags: {} } })
  const args = ['--port', '0', '--bind=::', '--data', 'd', '--log-level', 'debug', '--log-file', 'x.log']
  const flags = { port: 0, bind: '::', logLevel: 'debug', logFile: 'x.log' }
  t.strictSame(parseCommand(args), { name: 'serve', arguments: { data: 'd', flags } })
  t.strictSame(parseCommand(['serve', ...args]), parseCommand(args))
  t.strictSame(parseCommand([...args, 'serve']), parseCommand(args))
  t.strictSame(parseCommand(['serve', '--hosted']), {
    name: 'serve',
    arguments: { data: undefined, flags: { hosted: true } },
  })
  t.match(HELP, '--hosted ')
  const tls = ['--tls-cert', 'c.pem', '--tls-key', 'k.pem', '--tls-port', '0', '--tls-bind', '::']
  t.strictSame(parseCommand(tls), {
    name: 'serve',
    arguments: {
      data: undefined,
      flags: { tlsCert: 'c.pem', tlsKey: 'k.pem', tlsPort: 0, tlsBind: '::' },
    },
  })
  t.throws(() => parseCommand(['--tls-port', '70000']), {
    message: '--tls-port must be a whole number from 0 to 65535, not "70000".',
  })
  for (const flag of ['tls-cert', 'tls-key', 'tls-port', 'tls-bind']) t.match(HELP, `--${flag} <`)
  for (const word of ['--help', '-h', 'help']) t.strictSame(parseCommand([word]), { name: 'help' })
  for (const word of ['--version', '-v']) t.strictSame(parseCommand([word]), { name: 'version' })
  for (const flag of ['port', 'bind', 'data', 'log-level', 'log-file']) t.match(HELP, `--${flag} <`)
  t.end()
})

t.test('sizes', (t) => {
  t.strictSame(parseCommand(['size']), { name: 'size', data: undefined, database: null, json: false })
  t.strictSame(parseCommand(['size', 'notes', '--json', '--data', 'd']), {
    name: 'size',
    data: 'd',
    database: 'notes',
    json: true,
  })
  t.throws(() => parseCommand(['size', 'a', 'b']), UsageError)
  t.throws(() => parseCommand(['size', '--stdin']), UsageError)
  t.match(HELP, 'settee size [')
  t.end()
})

t.test('commands about accounts', (t) => {
  const table: [args: string[], command: Command][] = [
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
  for (const [args, command] of table) t.strictSame(parseCommand(args), command)
  for (const command of ['passwd <', 'account add <', 'account list', 'account delete <']) {
    t.match(HELP, `settee ${command}`)
  }
  for (const flag of ['create', 'role <', 'stdin']) t.match(HELP, `--${flag}`)
  t.end()
})

t.test('mistakes are told in one sentence', (t) => {
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
      'settee passwd takes one name and no other word; a password is asked for.',
    ],
    [['passwd', 'anna', '--port', '1'], 'settee passwd has no option --port.'],
    [['passwd', 'anna', '--role', 'x'], 'settee passwd has no option --role.'],
    [['account'], 'settee account needs add, list or delete.'],
    [['account', 'remove', 'x'], 'settee account needs add, list or delete.'],
    [['account', 'add'], 'settee account add needs a name.'],
    [['account', 'add', 'x', '--role', ' '], '--role needs a value.'],
    [['account', 'add', 'x', '--create'], 'settee account add has no option --create.'],
    [['account', 'list', 'x'], 'Unexpected argument "x".'],
    [['account', 'list', '--stdin'], 'settee account list has no option --stdin.'],
    [['account', 'delete', 'x', '--stdin'], 'settee account delete has no option --stdin.'],
    [['help', 'me'], 'Unexpected argument "me".'],
    ...['abc', '1.5', '65536', '', '0x10', '5984 '].map((port): [string[], string] => [
      [`--port=${port}`],
      `--port must be a whole number from 0 to 65535, not "${port}".`,
    ]),
  ]
  for (const [args, message] of table) {
    t.throws(() => parseCommand(args), { message })
    t.throws(() => parseCommand(args), UsageError)
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
  t.strictSame(parseCommand(['rewind', 'notes', '--to', '2025-03-01T14:05Z']), { ...rewind, at })
  t.strictSame(
    parseCommand([
      'rewind',
      'notes',
      '--to',
      String(at),
      '--id',
      'a',
      '--id',
      'b',
      '--dry-run',
      '--yes',
      '--json',
    ]),
    { ...rewind, at, ids: ['a', 'b'], dryRun: true, yes: true, json: true },
  )
  const history = {
    name: 'history',
    data: undefined,
    json: false,
    database: 'notes',
    id: undefined,
    limit: 50,
  }
  t.strictSame(parseCommand(['history', 'notes']), history)
  t.strictSame(parseCommand(['history', 'notes', 'a', '--limit', '5']), { ...history, id: 'a', limit: 5 })
  for (const args of [
    ['history'],
    ['history', 'notes', 'a', 'b'],
    ['history', 'notes', '--limit', '0'],
    ['history', 'notes', '--yes'],
    ['rewind'],
    ['rewind', 'notes'],
    ['rewind', 'notes', '--to', 'yesterday'],
    ['rewind', 'notes', 'a', '--to', '2025-03-01'],
  ]) {
    t.throws(() => parseCommand(args), UsageError, args.join(' '))
  }
})
