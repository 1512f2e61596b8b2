/** @returns what came of a promise; null when it failed, or has not come after so many ms */
export function orNull<T>(promise: Promise<T>, ms: number): Promise<T | null> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(null), ms)
    const end = (result: T | null) => {
      clearTimeout(late)
      resolve(result)
    }
    promise.then(end, () => end(null))
  })
}
