/**
 * How a row of the rights matrix says who gets what: a request, and the status for each of five callers on each of
 * three servers. Most rows say it by the name of a rule of protocol.md 11.4 with the status of whoever is let in.
 */

/**
 * On every server there is a database with the admin `d` and the member `m`; `o` is an account that has nothing to do
 * with it, `s` the server's admin. The password is the name.
 */
export const CALLERS = ['anonymous', 'o', 'm', 'd', 's'] as const
export type Caller = (typeof CALLERS)[number]

/**
 * `open`: no admin is configured. `secured`: there is one. `hosted`: hosted mode; there `d` owns the database, and `o`
 * is another tenant with one of its own.
 */
export const CONDITIONS = ['open', 'secured', 'hosted'] as const
export type Condition = (typeof CONDITIONS)[number]

/** What each of {@link CALLERS} gets. */
export type Columns = readonly [anonymous: number, o: number, m: number, d: number, s: number]

/** null: not asked there. */
export type Statuses = Readonly<Record<Condition, Columns | null>>

/**
 * What is sent. In it and in the line `{db}` stands for the database, `{n}` for a number that nobody else gets, and
 * each other name for something that is made for the one call: see `Made` in matrix-server.ts.
 */
export interface Sent {
  /** Sent as JSON, with its content type. */
  readonly json?: unknown
  /** Sent as it is. */
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** The line is like `GET /{db}/doc`; a row of GET is one of HEAD too. */
export type Row = readonly [line: string, statuses: Statuses, sent?: Sent]

/** By the path of the route table. */
export type Rows = Readonly<Record<string, readonly Row[]>>

/** The same for everybody. */
export function everybody(status: number): Columns {
  return [status, status, status, status, status]
}

/** While no admin is configured everybody is one. */
function ruled(secured: Columns, hosted: Columns = secured): Statuses {
  return { open: everybody(secured[4]), secured, hosted }
}

/** Whoever asks. */
export const anybody = (status: number): Statuses => ruled(everybody(status))

/** Whoever has logged in. */
export const accounts = (status: number): Statuses => ruled([401, status, status, status, status])

/** Members of the database; on a hosted server others are not told that it is there. */
export const members = (status: number): Statuses =>
  ruled([401, 403, status, status, status], [401, 404, status, status, status])

/** Admins of the database. */
export const databaseAdmins = (status: number): Statuses =>
  ruled([401, 403, 403, status, status], [401, 404, 403, status, status])

/** The same, where CouchDB answers 401 to a member: protocol.md 19.7. */
export const maintainers = (status: number): Statuses =>
  ruled([401, 403, 401, status, status], [401, 404, 401, status, status])

/** A database that is not there: of whom it could be hidden nobody sees a difference. */
export const absent: Statuses = {
  open: everybody(404),
  secured: [401, 404, 404, 404, 404],
  hosted: [401, 404, 404, 404, 404],
}

/** Server admins; of the five nobody else has the role `_metrics`. */
export const serverAdmins = (status: number): Statuses => ruled([401, 401, 401, 401, status])
export const metricsReaders = serverAdmins

/** Server admins, and each account of a hosted server, for what is its own. */
export const tenants = (status: number): Statuses =>
  ruled([401, 401, 401, 401, status], [401, status, status, status, status])

/** Server admins, and on a hosted server the account whose database it is. */
export const owners = (status: number): Statuses =>
  ruled([401, 401, 401, 401, status], [401, 404, 403, status, status])

/** Without accounts who could own anything there is nothing there: 404 to whom the rule lets in. */
export function onlyHosted(rule: (status: number) => Statuses, status: number): Statuses {
  return { ...rule(404), hosted: rule(status).hosted }
}

/** The rule with another status on a hosted server. */
export function hostedIs(
  rule: (status: number) => Statuses,
  { status, hosted }: { readonly status: number; readonly hosted: number },
): Statuses {
  return { ...rule(status), hosted: rule(hosted).hosted }
}
