/**
 * What `@peculiar/x509` asks of the package reflect-metadata, of which it wants to be given one: notes on functions by
 * name, found on those that they inherit from, too.
 */
type Notes = Map<unknown, unknown>

const notes = new WeakMap<object, Notes>()

function notesOf(target: object): Notes {
  const found = notes.get(target) ?? new Map()
  notes.set(target, found)
  return found
}

function getMetadata(key: unknown, target: object): unknown {
  for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at)) {
    const found = notes.get(at)
    if (found?.has(key)) return found.get(key)
  }
  return undefined
}

if (!('getMetadata' in Reflect)) {
  Object.assign(Reflect, {
    getMetadata,
    getOwnMetadata: (key: unknown, target: object) => notes.get(target)?.get(key),
    defineMetadata: (key: unknown, value: unknown, target: object) => notesOf(target).set(key, value),
  })
}
