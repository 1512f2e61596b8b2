/** The grammar of `settee doctor`. */
import { grammar, UsageError, type Values } from './grammar.ts'

/** Checks a server from outside, as apps see it. */
export interface DoctorCommand {
  readonly name: 'doctor'
  /** null: read from standard input. */
  readonly address: string | null
  readonly quick: boolean
  readonly long: boolean
  readonly mobile: boolean
  readonly json: boolean
  readonly report: boolean
  /** Empty: the origins of the known apps. */
  readonly origins: readonly string[]
  /** The path of a PEM file of certificates. */
  readonly ca: string | undefined
  /** By names in lower case; the values may be secrets. */
  readonly headers: Readonly<Record<string, string>>
}

const OPTIONS = {
  quick: { type: 'boolean' },
  long: { type: 'boolean' },
  mobile: { type: 'boolean' },
  json: { type: 'boolean' },
  report: { type: 'boolean' },
  stdin: { type: 'boolean' },
  origin: { type: 'string', multiple: true },
  ca: { type: 'string' },
  header: { type: 'string', multiple: true },
} as const

export const DOCTOR = grammar({
  name: 'doctor',
  usage: `<address> [--quick | --long] [--mobile] [--json | --report] [--stdin]
[--origin <origin>]... [--header <header>]... [--ca <file>]`,
  about: 'check a server from outside, as apps see it',
  details: `Checks a server from outside, as apps see it, and names each problem and the setting to change.
<address> is https://user:password@host:port/database. Nothing stays behind on the server. The exit
code is 0 when nothing is wrong:
  --quick              skip slow checks: takes less than 3 s
  --long               wait two minutes for feeds that are cut, and longer for large bodies
  --mobile             also check what phones and tablets require
  --origin <origin>    origin of your own app, instead of Obsidian's (may be repeated)
  --header <header>    send 'NAME: VALUE' with each request, as LiveSync's
                       Custom Headers do (may be repeated)
  --ca <file>          also trust this certificate
  --stdin              read the address from standard input, so that nobody sees the password
  --json               print JSON
  --report             print a report that you can share, without the names of host and account
`,
  options: OPTIONS,
  read: doctorCommand,
})

/** The form in which browsers send an origin. A server cannot allow any other form. */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[a-z0-9._[\]:-]+$/

/** @throws UsageError, which never contains the address: it may hold a password */
function doctorCommand(
  [address, ...extra]: readonly string[],
  values: Values<typeof OPTIONS>,
): DoctorCommand {
  const { quick = false, long = false, mobile = false, json = false, report = false } = values
  const { stdin = false, origin: origins = [], header = [], ca } = values
  if (extra.length > 0) throw new UsageError('settee doctor takes one address.')
  if (stdin === (address !== undefined)) throw new UsageError('settee doctor needs an address, or --stdin.')
  if (quick && long) throw new UsageError('--quick cannot be combined with --long.')
  if (json && report) throw new UsageError('--json cannot be combined with --report.')
  if (!origins.every((each) => ORIGIN.test(each)))
    throw new UsageError(
      '--origin must look like https://notes.example.org: lowercase, no path, no slash at the end.',
    )
  const headers = headersOf(header)
  return { name: 'doctor', address: address ?? null, quick, long, mobile, json, report, origins, ca, headers }
}

/** A token, and printable ASCII (RFC 9110 5.1, 5.5). */
const HEADER = /^([!#$%&'*+.^_`|~\w-]+):[ \t]*([!-~](?:[ -~\t]*[!-~])?)[ \t]*$/
/** Headers that the doctor sets, or that frame a request. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  'accept-encoding',
  'authorization',
  'connection',
  'content-length',
  'content-type',
  'expect',
  'host',
  'origin',
  'te',
  'transfer-encoding',
  'upgrade',
])
const MAX_HEADERS = 20

/** @throws UsageError, which never contains a header: it may hold a secret */
function headersOf(lines: readonly string[]): Record<string, string> {
  if (lines.length > MAX_HEADERS) throw new UsageError(`settee doctor sends at most ${MAX_HEADERS} headers.`)
  return Object.fromEntries(
    lines.map((line) => {
      const [, name = '', value = ''] = HEADER.exec(line) ?? []
      if (name === '') throw new UsageError("--header must look like 'NAME: VALUE'.")
      if (OWN_HEADERS.has(name.toLowerCase()))
        throw new UsageError(`--header cannot set ${name.toLowerCase()}: the doctor sets it itself.`)
      return [name.toLowerCase(), value]
    }),
  )
}
