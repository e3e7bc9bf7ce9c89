// librdkafka uses C11 threads, of which ThreadSanitizer knows nothing: it would crash in a thread that it did not see
// begin, and miss every lock. In its build these stand in front of the C library's and say the same in pthreads, whose
// objects have the same layout there.
#if defined(__SANITIZE_THREAD__)

#include <pthread.h>
#include <threads.h>

#include <cerrno>

namespace {

struct Start {
    thrd_start_t run;
    void* argument;
};

void* run_it(void* given) {
    const Start start = *static_cast<Start*>(given);
    delete static_cast<Start*>(given);
    return reinterpret_cast<void*>(static_cast<long>(start.run(start.argument)));
}

int answer(int error) { return error == 0 ? thrd_success : error == ETIMEDOUT ? thrd_timedout : thrd_error; }
pthread_mutex_t* own(mtx_t* mutex) { return reinterpret_cast<pthread_mutex_t*>(mutex); }
pthread_cond_t* own(cnd_t* condition) { return reinterpret_cast<pthread_cond_t*>(condition); }

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

// librdkafka is not instrumented itself, so its own locks by atomics look like races. None of our code runs on its
// threads: what is ours has no frame of it.
EXPORTED const char* __tsan_default_suppressions() { return "race:librdkafka.so\n"; }

EXPORTED int thrd_create(thrd_t* thread, thrd_start_t run, void* argument) {
    return answer(pthread_create(thread, nullptr, run_it, new Start{run, argument}));
}
EXPORTED int thrd_join(thrd_t thread, int* result) {
    void* returned = nullptr;
    const int error = pthread_join(thread, &returned);
    if (result != nullptr) *result = static_cast<int>(reinterpret_cast<long>(returned));
    return answer(error);
}
EXPORTED int thrd_detach(thrd_t thread) { return answer(pthread_detach(thread)); }

EXPORTED int mtx_init(mtx_t* mutex, int type) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if ((type & mtx_recursive) != 0) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    const int error = pthread_mutex_init(own(mutex), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return answer(error);
}
EXPORTED int mtx_lock(mtx_t* mutex) { return answer(pthread_mutex_lock(own(mutex))); }
EXPORTED int mtx_trylock(mtx_t* mutex) {
    const int error = pthread_mutex_trylock(own(mutex));
    return error == EBUSY ? thrd_busy : answer(error);
}
EXPORTED int mtx_unlock(mtx_t* mutex) { return answer(pthread_mutex_unlock(own(mutex))); }
EXPORTED void mtx_destroy(mtx_t* mutex) { pthread_mutex_destroy(own(mutex)); }

EXPORTED int cnd_init(cnd_t* condition) { return answer(pthread_cond_init(own(condition), nullptr)); }
EXPORTED int cnd_signal(cnd_t* condition) { return answer(pthread_cond_signal(own(condition))); }
EXPORTED int cnd_broadcast(cnd_t* condition) { return answer(pthread_cond_broadcast(own(condition))); }
EXPORTED int cnd_wait(cnd_t* condition, mtx_t* mutex) { return answer(pthread_cond_wait(own(condition), own(mutex))); }
EXPORTED int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
    return answer(pthread_cond_timedwait(own(condition), own(mutex), until));
}
EXPORTED void cnd_destroy(cnd_t* condition) { pthread_cond_destroy(own(condition)); }
}

#endif
