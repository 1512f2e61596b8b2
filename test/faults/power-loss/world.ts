/** What the recorded server is set up with, and how its content is written down. */
export const ADMIN = { name: 'anna', password: 'a long password' } as const

/** Few open databases, so that they are closed and opened again; small budgets, so that uploads are staged. */
export const LOCAL_INI = `
[admins]
${ADMIN.name} = ${ADMIN.password}
[chttpd_auth]
iterations = 10
[couchdb]
max_dbs_open = 2
[settee]
body_memory = 1048576
`

/** Of the server whose backups and restores are recorded: everybody is an admin. */
export const OPEN_INI = `
[couchdb]
max_dbs_open = 4
`

/** A document's content as one text. @param atts SHA-256 of each attachment, in hex */
export function docValue(body: string, atts: Readonly<Record<string, string>>): string {
  return JSON.stringify([body, Object.entries(atts).sort()])
}
