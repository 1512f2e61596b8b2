/** The body of `_find` as the user has written it, and how the page completes it. Pure. */
import { findObjectFault, membersOf } from '../../parts/json-editor/exact-json.ts'

/** Documents on a page where the query has no `limit`, as the server has it by default, and at most. */
const PAGE = 25
const MAX_PAGE = 200

/** Members that the page sets itself. */
const OWN = new Set(['bookmark', 'execution_stats', 'limit'])

/** @returns the number of documents on a page of a query */
export function pageOf(text: string): number {
  const limit = memberOf(text, 'limit')
  return typeof limit === 'number' && Number.isInteger(limit) && limit > 0 ? Math.min(limit, MAX_PAGE) : PAGE
}

/**
 * The body for one page. All other members stay as they are written.
 * @param bookmark of the page before; null for the first
 * @throws SyntaxError for a text that is not a JSON object
 */
export function pageBody(text: string, bookmark: string | null): string {
  const own = [
    `"limit":${limitOf(text)}`,
    '"execution_stats":true',
    ...(bookmark === null ? [] : [`"bookmark":${JSON.stringify(bookmark)}`]),
  ]
  return `{${[...otherMembers(text), ...own].join(',')}}`
}

/** The body for `_explain`, which does not take a bookmark of another query. */
export function explainBody(text: string): string {
  return `{${otherMembers(text).join(',')}}`
}

/** A limit that is no number is sent as it is, so that the server says what is wrong with it. */
function limitOf(text: string): string {
  const limit = memberOf(text, 'limit')
  const isPage = limit === undefined || (typeof limit === 'number' && Number.isInteger(limit) && limit > 0)
  return isPage ? String(pageOf(text)) : JSON.stringify(limit)
}

function otherMembers(text: string): string[] {
  return membersOf(text)
    .filter(({ name }) => !OWN.has(name))
    .map(({ from, to }) => text.slice(from, to))
}

/** @returns a member as a value; undefined without it, or when the text is not a JSON object */
export function memberOf(text: string, name: string): unknown {
  if (findObjectFault(text) !== null) return undefined
  const found = membersOf(text).findLast((member) => member.name === name)
  return found === undefined ? undefined : (JSON.parse(text.slice(found.valueFrom, found.to)) as unknown)
}

/** @returns the names of the fields by which a query sorts */
export function sortFields(text: string): readonly string[] {
  const sort = memberOf(text, 'sort')
  if (!Array.isArray(sort)) return []
  return sort.flatMap((each: unknown) => {
    if (typeof each === 'string') return [each]
    return typeof each === 'object' && each !== null ? Object.keys(each) : []
  })
}
