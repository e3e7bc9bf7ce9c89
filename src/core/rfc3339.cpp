#include "core/rfc3339.hpp"

namespace outbox::core {

namespace {

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kDay = 86'400 * kSecond;
constexpr std::int64_t kFirst = -719'162 * kDay;      // 0001-01-01T00:00:00.000000Z
constexpr std::int64_t kLast = 2'932'897 * kDay - 1;  // 9999-12-31T23:59:59.999999Z

struct Date {
    int year, month, day;
};

// Proleptic Gregorian date of a day since 1970-01-01, counted in eras of 400 years that begin on 1 March of year 0.
Date date_of(std::int64_t day) {
    const std::int64_t shifted = day + 719'468;
    const std::int64_t era = (shifted >= 0 ? shifted : shifted - 146'096) / 146'097;
    const auto of_era = static_cast<int>(shifted - era * 146'097);
    const int year_of_era = (of_era - of_era / 1'460 + of_era / 36'524 - of_era / 146'096) / 365;
    const int of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);  // from 1 March
    const int month_from_march = (5 * of_year + 2) / 153;
    const int month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    return {static_cast<int>(era * 400) + year_of_era + (month <= 2), month,
            of_year - (153 * month_from_march + 2) / 5 + 1};
}

// `count` digits, then the separator.
char* put(char* to, int value, int count, char separator) {
    for (int i = count - 1; i >= 0; --i, value /= 10) to[i] = static_cast<char>('0' + value % 10);
    to[count] = separator;
    return to + count + 1;
}

}  // namespace

void write_rfc3339(char* to, std::int64_t unix_micros) {
    const std::int64_t time = unix_micros < kFirst ? kFirst : unix_micros > kLast ? kLast : unix_micros;
    std::int64_t day = time / kDay;
    if (time % kDay < 0) --day;
    const std::int64_t of_day = time - day * kDay;
    const auto second = static_cast<int>(of_day / kSecond);
    const Date date = date_of(day);
    to = put(to, date.year, 4, '-');
    to = put(to, date.month, 2, '-');
    to = put(to, date.day, 2, 'T');
    to = put(to, second / 3600, 2, ':');
    to = put(to, second / 60 % 60, 2, ':');
    to = put(to, second % 60, 2, '.');
    put(to, static_cast<int>(of_day % kSecond), 6, 'Z');
}

}  // namespace outbox::core
