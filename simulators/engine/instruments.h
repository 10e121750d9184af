// Controls for tests beyond the vendor's interface: counts of live objects, calls made to fail,
// and the text of the last refusal.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace sim {

class Instruments {
  public:
    // Calls named in UHAL_SIM_FAIL, `call:nth:code` separated by commas.
    explicit Instruments(std::string &complaint);

    // Makes the nth later call of this name return `code` once. A test may plan several failures.
    // A code of 0 cancels the failures planned for that name.
    void fail(const std::string &call, unsigned nth, int code);

    // Counts one call; returns the code that the call must return, or 0 to go on.
    int on_call(const char *call);

    // Text for the last refusal on this thread, kept until the next refusal.
    static void say(const std::string &text);
    static const std::string &said();

    // Text for the latest fault of a device, by the fault's code. It is the same for every thread,
    // because a program may wait on one thread and ask on another.
    static void say_fault(int code, const std::string &text);
    static std::string fault_said(int code);

  private:
    struct Failure {
        unsigned remaining;
        int code;
    };

    std::mutex mutex_;
    std::map<std::string, std::vector<Failure>> planned_;
};

} // namespace sim

#pragma GCC visibility push(default)
extern "C" {

// Live objects of a kind ("stream", "event", "allocation", ...), -1 for an unknown kind.
long uhal_sim_live(const char *kind);

// Instruments::fail of the simulated driver.
void uhal_sim_fail(const char *call, unsigned nth, int code);

// Text for this thread's last refusal, "" without a refusal; valid until the next refusal.
const char *uhal_sim_message(void);
}
#pragma GCC visibility pop
