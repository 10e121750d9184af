// The translator of PTX: a Python process that answers each request on a socket in one line.
//
// It starts at the first request and inherits only the environment of this process. It ends with
// this process, or after a long time without requests.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace sim {

struct TranslatorAnswer {
    enum class Kind {
        done,
        no_ptx,      // the text has an error
        unsupported, // it cannot be executed here
        unavailable, // there is no translator: words say what is missing
        failed,      // it exceeded the time limit or crashed
    };

    Kind kind = Kind::done;
    unsigned line = 0; // of the text; 0 when the answer names no line
    std::string words;
};

// Not thread-safe: callers hold the scheduler's lock.
class Translator {
  public:
    // Checks a text and writes facts for a driver.
    TranslatorAnswer describe(const std::string &text_file, const std::string &description_file);

    // Translates a kernel into a shared library.
    TranslatorAnswer translate(const std::string &text_file, const std::string &entry,
                               const std::string &check, const std::string &library_file);

  private:
    TranslatorAnswer ask(const std::vector<std::string> &question);
    bool start(std::string &why);
    void stop();
    bool send_all(const std::string &text);
    bool receive_line(std::string &line, bool &late);

    pid_t process_ = -1;
    int socket_ = -1;
};

} // namespace sim
