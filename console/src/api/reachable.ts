/**
 * Whether a path leads to what it names. A browser resolves `.` and `..`, however they are escaped (URL Standard,
 * "double-dot URL path segment"). So a document or an attachment of such a name would stand for another resource, which
 * the user does not mean: `notes/id/../../_node/_local/_config/admins/anna`.
 */
export function isReachable(path: string): boolean {
  return !path.split('/').some((segment) => /^(?:\.|%2e){1,2}$/i.test(segment))
}
